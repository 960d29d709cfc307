// What a notebook runs beside a page in a frame: the frame is as high as its page says that it is.
(() => {
  const HIGHEST = 6000; // CSS pixels; a page that is longer scrolls inside its frame
  const { regardFrames } = /** @type {any} */ (window);
  if (regardFrames) return; // another cell has begun to listen
  Object.assign(window, { regardFrames: true });
  addEventListener("message", ({ data, source }) => {
    const high = Number(data?.regardHeight);
    if (!(high > 0)) return;
    for (const frame of /** @type {NodeListOf<HTMLIFrameElement>} */ (document.querySelectorAll("iframe.regard"))) {
      if (frame.contentWindow === source) frame.style.height = `${Math.min(HIGHEST, Math.ceil(high) + 2)}px`;
    }
  });
})();
