import { useEffect, useState } from 'preact/hooks';

const TINT_KEY = 'odmoe-shades-tokens';

type Listener = () => void;

/** Null: not read from the browser's store yet. */
let showsTint: boolean | null = null;
const listeners = new Set<Listener>();

function readTint(): boolean {
  try {
    return localStorage.getItem(TINT_KEY) !== 'no';
  } catch {
    // A browser may forbid the page to store anything.
    return true;
  }
}

/** Whether answers show how sure the model was of each token. */
export function useShowsTint(): boolean {
  const [shown, setShown] = useState(() => (showsTint ??= readTint()));
  useEffect(() => {
    const listener = (): void => setShown(showsTint ?? true);
    listeners.add(listener);
    listener();
    return () => {
      listeners.delete(listener);
    };
  }, []);
  return shown;
}

export function setShowsTint(shows: boolean): void {
  showsTint = shows;
  try {
    localStorage.setItem(TINT_KEY, shows ? 'yes' : 'no');
  } catch {
    // The choice then lasts until the page is loaded again.
  }
  for (const listener of [...listeners]) listener();
}
