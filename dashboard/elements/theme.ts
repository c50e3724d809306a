export type ColourTheme = 'system' | 'light' | 'dark';

const KEY = 'odmoe-theme';

export function rememberedTheme(): ColourTheme {
  try {
    const remembered = localStorage.getItem(KEY);
    return remembered === 'light' || remembered === 'dark' ? remembered : 'system';
  } catch {
    // A browser may forbid the page to store anything.
    return 'system';
  }
}

/** An event for charts: they draw on a canvas, whose colours do not change by themselves. */
export const THEME_CHANGED = 'theme-changed';

export function applyTheme(theme: ColourTheme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  window.dispatchEvent(new Event(THEME_CHANGED));
}

export function rememberTheme(theme: ColourTheme): void {
  try {
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // The theme then lasts until the page is loaded again.
  }
  applyTheme(theme);
}

export function isDark(): boolean {
  const theme = document.documentElement.dataset.theme;
  return theme === undefined ? window.matchMedia('(prefers-color-scheme: dark)').matches : theme === 'dark';
}
