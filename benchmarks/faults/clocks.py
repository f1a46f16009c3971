"""A clock that can be set forward or back for some processes, as an administrator or a wrong time server might do."""

import struct
import subprocess
from pathlib import Path

#: Wraps the functions that read the time of day. Waits until a time of day use the real time; monotonic clocks stay
#: unchanged. libfaketime would do, but with Debian's version Python's ``time.sleep`` fails.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static const long none, *shift = &none;
__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("IPATE_CLOCK"), O_RDONLY);
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) shift = map;
    if (file >= 0) close(file);
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += *shift;
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
/* A deadline on a monotonic clock is far smaller than one of the time of day. */
static struct timespec unshifted(const struct timespec *until) {
    struct timespec at = *until;
    if (at.tv_sec > 1000000000) at.tv_sec -= *shift;
    return at;
}
int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    struct timespec at = unshifted(until);
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    return real(semaphore, &at);
}
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec at = unshifted(until);
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return real(condition, mutex, &at);
}
"""


class ShiftedClock:
    """A clock for the processes started with its `environment`; needs Linux and a C compiler."""

    def __init__(self, folder: Path) -> None:
        source, library, self._file = folder / "clock.c", folder / "clock.so", folder / "clock"
        source.write_text(_SOURCE)
        self.set(0)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-lpthread"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "IPATE_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Set the clock fast by this many seconds, or slow if negative."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("@l", seconds))
