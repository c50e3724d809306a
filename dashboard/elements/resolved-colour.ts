import { useEffect, useState } from 'preact/hooks';
import { THEME_CHANGED } from './theme.js';

/** A colour of colours.css as it is now, for a canvas, which knows no custom properties. `name`: without its dashes. */
export function resolvedColour(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Changes with the theme, whether the page's switch or the system changed it: whoever draws on a canvas then draws again. */
export function useThemeCount(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = (): void => setCount((before) => before + 1);
    const system = window.matchMedia('(prefers-color-scheme: dark)');
    window.addEventListener(THEME_CHANGED, changed);
    system.addEventListener('change', changed);
    return () => {
      window.removeEventListener(THEME_CHANGED, changed);
      system.removeEventListener('change', changed);
    };
  }, []);
  return count;
}
