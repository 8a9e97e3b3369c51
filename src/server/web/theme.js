// Runs before the page is painted: the theme that was chosen, else the system's.
// A classic script: modules would run after the first paint.
(() => {
  const slot = 'kvasir.theme';
  const root = document.documentElement;
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  let chosen = null;
  try {
    chosen = localStorage.getItem(slot);
  } catch {
    chosen = null;
  }
  if (chosen === 'dark' || chosen === 'light') root.dataset.theme = chosen;

  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme-toggle');
    const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : system.matches);
    const label = () => {
      const text = isDark() ? 'Use the light theme' : 'Use the dark theme';
      button.setAttribute('aria-label', text);
      button.title = text;
    };
    button.addEventListener('click', () => {
      root.dataset.theme = isDark() ? 'light' : 'dark';
      try {
        localStorage.setItem(slot, root.dataset.theme);
      } catch {
        // The choice then lasts as long as the page.
      }
      label();
    });
    system.addEventListener('change', label);
    label();
  });
})();
