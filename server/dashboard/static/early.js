// Sets theme and language before the first paint. It is a script of its own, not a module,
// because a module would run after the paint.
(() => {
  const root = document.documentElement;
  let kept = {};
  try {
    kept = { theme: localStorage.getItem('stint.theme'), lang: localStorage.getItem('stint.lang') };
  } catch {
    // The browser keeps nothing: the defaults count.
  }
  if (kept.theme === 'dark' || kept.theme === 'light') root.dataset.theme = kept.theme;
  const lang = kept.lang || (navigator.language || 'en').slice(0, 2);
  root.lang = lang === 'zh' ? 'zh' : 'en';
})();
