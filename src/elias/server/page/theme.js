// Before anything is drawn, so that the page does not flash in the wrong colors.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* a browser that stores nothing */ }
