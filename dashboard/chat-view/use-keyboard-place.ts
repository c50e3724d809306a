import { useEffect } from 'preact/hooks';

const PROPERTY = '--keyboard-pixels';

/**
 * Tells the style sheet how much of the window's end the keyboard of a phone covers. Browsers that make the window smaller instead (index.html
 * asks for it) leave it 0; Safari only moves what is seen of the page.
 */
export function useKeyboardPlace(): void {
  useEffect(() => {
    const seen = window.visualViewport;
    if (seen === null) return;
    const measure = (): void => {
      const covered = seen.scale > 1 ? 0 : Math.max(0, window.innerHeight - seen.height - seen.offsetTop);
      document.documentElement.style.setProperty(PROPERTY, `${Math.round(covered)}px`);
    };
    measure();
    seen.addEventListener('resize', measure);
    seen.addEventListener('scroll', measure);
    return () => {
      seen.removeEventListener('resize', measure);
      seen.removeEventListener('scroll', measure);
      document.documentElement.style.removeProperty(PROPERTY);
    };
  }, []);
}
