import { useEffect, useState } from 'preact/hooks';
import { THEME_CHANGED } from './theme.js';

/** The present value of a colour of colours.css, for a canvas, which cannot use custom properties. `name`: without its dashes. */
export function resolvedColour(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** A count that changes with the theme, by the page's switch or by the system. Components that draw on a canvas then draw again. */
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
