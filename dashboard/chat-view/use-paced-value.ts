import { useEffect, useRef, useState } from 'preact/hooks';
import { pauseMs } from './draw-pace.js';

/**
 * A value that changes often, no more often than the page can draw it. `isRunning`: it changes still; its last value is returned at once.
 */
export function usePacedValue<T>(value: T, isRunning: boolean): T {
  const [shown, setShown] = useState(value);
  const pace = useRef({ latest: value, isWaiting: false, readyMs: 0 });
  pace.current.latest = value;
  useEffect(() => {
    const { current } = pace;
    if (!isRunning || current.isWaiting || value === shown) return;
    current.isWaiting = true;
    window.setTimeout(
      () => {
        current.isWaiting = false;
        const beginMs = performance.now();
        setShown(current.latest);
        // The task after the next frame runs when the new elements have been laid out and painted.
        requestAnimationFrame(() =>
          window.setTimeout(() => {
            current.readyMs = performance.now() + pauseMs(performance.now() - beginMs);
          }),
        );
      },
      Math.max(0, current.readyMs - performance.now()),
    );
  }, [value, shown, isRunning]);
  return isRunning ? shown : value;
}
