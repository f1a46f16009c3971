// Buttons that let the browser read a text aloud; without a voice in the browser they stay hidden.
const voices = window.speechSynthesis;

function prepare(button) {
  const texts = [...button.closest("section").querySelectorAll(".prose[lang]")];
  const words = { start: button.textContent, stop: button.dataset.stop };
  let reading = false;
  const show = (now) => {
    reading = now;
    button.textContent = reading ? words.stop : words.start;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    voices.cancel();
    if (reading) {
      show(false);
      return;
    }
    const parts = texts
      .flatMap((text) => [...text.children].map((part) => ({ words: part.textContent.trim(), lang: text.lang })))
      .filter((part) => part.words);
    parts.forEach((part, place) => {
      const speech = new SpeechSynthesisUtterance(part.words);
      speech.lang = part.lang;
      if (place === parts.length - 1) speech.addEventListener("end", () => show(false));
      voices.speak(speech);
    });
    show(true);
  });
  addEventListener("pagehide", () => voices.cancel());
}

if (voices) document.querySelectorAll("[data-read-aloud]").forEach(prepare);
