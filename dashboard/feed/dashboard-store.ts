import { useEffect, useState } from 'preact/hooks';
import { EMPTY_STATE, type DashboardState } from './dashboard-state.js';

type Listener = () => void;

let state = EMPTY_STATE;
const listeners = new Set<Listener>();

const selectIsSilent = ({ silentSinceMs }: DashboardState): boolean => silentSinceMs !== null;

/** True while main tells nothing, so that what the page holds may no longer be so. */
export function useIsSilent(): boolean {
  return useDashboard(selectIsSilent);
}

export function updateDashboard(change: (state: DashboardState) => DashboardState): void {
  state = change(state);
  for (const listener of [...listeners]) listener();
}

/** Draws again when `select` returns another object than before. `select` must be the same function at every call. */
export function useDashboard<T>(select: (state: DashboardState) => T): T {
  const [selected, setSelected] = useState(() => select(state));
  useEffect(() => {
    const listener = (): void => {
      const next = select(state);
      setSelected(() => next);
    };
    listeners.add(listener);
    listener();
    return () => {
      listeners.delete(listener);
    };
  }, [select]);
  return selected;
}
