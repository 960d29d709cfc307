// Runs in a notebook beside an embedded page: sets the frame's height to that of its page.
(() => {
  const HIGHEST = 6000; // CSS pixels; longer pages scroll inside the frame
  const { regardFrames } = /** @type {any} */ (window);
  if (regardFrames) return; // another cell already listens
  Object.assign(window, { regardFrames: true });
  addEventListener("message", ({ data, source }) => {
    const high = Number(data?.regardHeight);
    if (!(high > 0)) return;
    for (const frame of /** @type {NodeListOf<HTMLIFrameElement>} */ (document.querySelectorAll("iframe.regard"))) {
      if (frame.contentWindow === source) frame.style.height = `${Math.min(HIGHEST, Math.ceil(high) + 2)}px`;
    }
  });
})();
