// Tell the site in which time zone its reader is, so that the next page shows times in it.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `zone=${zone}; path=/; max-age=31536000; SameSite=Lax${secure}`;
}
