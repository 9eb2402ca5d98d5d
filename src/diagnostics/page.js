"use strict";
// Puts news in place: what is being read does not move, what is selected or typed stays. Without an answer the page says how old
// it is, and goes on asking: a restart of the daemon or of a port-forward does not end it, as a reload would.
(() => {
  const PERIOD = 5000;
  const PATIENCE = 10000;
  // Saved to a file, it is what it was.
  if (!location.protocol.startsWith("http")) return;
  const stale = document.getElementById("stale");
  let last = new Date();
  let asking = false;
  const reading = () => !(getSelection()?.isCollapsed ?? true);
  const say = (text) => {
    stale.textContent = text;
    stale.hidden = text === "";
  };
  const refresh = async () => {
    if (asking || document.hidden || reading()) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (reading()) return;
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = next.getElementById(part.id);
        if (fresh) part.replaceWith(document.adoptNode(fresh));
      }
      document.title = next.title;
      last = new Date();
      say("");
    } catch {
      say(`No answer since ${last.toLocaleTimeString()}: this is how it was then. Asking again every ${PERIOD / 1000} s.`);
    } finally {
      asking = false;
    }
  };
  setInterval(refresh, PERIOD);
  document.addEventListener("visibilitychange", refresh);
})();
