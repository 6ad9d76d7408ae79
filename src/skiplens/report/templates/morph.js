// One drawing becomes another: paths move from what they were, what is on one side only fades.

const NUMBER = /-?\d+(\.\d+)?/g;
const MOVES = 900;  // milliseconds

function between(from, to, share) {
  const ends = to.match(NUMBER);
  let place = 0;
  return from.replace(NUMBER, (start) => (Number(start) + share * (ends[place++] - start)).toFixed(1));
}

function showMoment(drawing, share) {
  drawing.dataset.share = share;
  for (const path of all("[data-from]", drawing)) {
    path.dataset.to ||= path.getAttribute("d");
    path.dataset.toWidth ||= path.getAttribute("stroke-width");
    path.setAttribute("d", between(path.dataset.from, path.dataset.to, share));
    path.setAttribute("stroke-width", between(path.dataset.fromWidth, path.dataset.toWidth, share));
  }
  for (const shape of all(".appears", drawing)) shape.style.opacity = share;
  for (const shape of all(".leaves", drawing)) shape.style.opacity = 1 - share;
}

function morph(button) {
  const drawing = button.closest("div").querySelector("svg");
  const from = Number(drawing.dataset.share ?? 1);
  const back = button.textContent === "Show it as it was";
  const end = back ? 0 : 1;
  button.textContent = back ? "Show it changed" : "Show it as it was";
  button.previousElementSibling.textContent = back ? "As it was" : "Changed";
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) { showMoment(drawing, end); return; }
  const began = performance.now();
  drawing.dataset.began = began;
  requestAnimationFrame(function step(now) {
    if (drawing.dataset.began !== String(began)) return;  // pressed again meanwhile
    const time = Math.min(1, Math.max(0, (now - began) / MOVES));
    showMoment(drawing, time === 1 ? end : from + (end - from) * time * time * (3 - 2 * time));
    if (time < 1) requestAnimationFrame(step);
  });
}
