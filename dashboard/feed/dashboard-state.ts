import {
  FIGURES_KEPT_S,
  type ClusterEvent,
  type ClusterData,
  type ExpertHeat,
  type FigureSample,
  type PassTrace,
  type RecallView,
} from '../../shared/wire/cluster-events.js';

/** 'locked': main wants an API key first. 'lost': it was open, or never came; the feed tries again. */
export type Connection = 'connecting' | 'open' | 'lost' | 'locked';

/** Everything that the views draw. Members are replaced, never changed. */
export interface DashboardState {
  connection: Connection;
  /** Null: main has not told it yet. */
  cluster: ClusterData | null;
  /** Oldest first. */
  samples: readonly FigureSample[];
  recall: RecallView | null;
  heat: ExpertHeat | null;
  /** Oldest first; numbers may be missing. */
  passes: readonly PassTrace[];
}

/** Passes that the page holds: more than main tells at once, so that there is something to step back to. */
export const PASSES_HELD = 240;

/** Experts of these passes together: a pass of many sequences runs thousands, and a phone has little memory. */
export const EXPERTS_HELD = 100_000;

export const EMPTY_STATE: DashboardState = {
  connection: 'connecting',
  cluster: null,
  samples: [],
  recall: null,
  heat: null,
  passes: [],
};

/** Main tells everything again to who begins to listen, and may be another process than before: what was told is forgotten. */
export function withOpenConnection(state: DashboardState): DashboardState {
  return { ...EMPTY_STATE, cluster: state.cluster, connection: 'open' };
}

export function withEvent(state: DashboardState, event: ClusterEvent): DashboardState {
  switch (event.type) {
    case 'cluster':
      return { ...state, cluster: event.cluster };
    case 'figures':
      return { ...state, samples: [...state.samples, ...event.samples].slice(-FIGURES_KEPT_S) };
    case 'recall':
      return { ...state, recall: event.recall };
    case 'heat':
      return { ...state, heat: event.heat };
    case 'pass':
      return { ...state, passes: heldPasses([...state.passes, event.pass]) };
  }
}

/** The latest of them, within the bounds; one at least. */
function heldPasses(passes: readonly PassTrace[]): readonly PassTrace[] {
  let experts = 0;
  const first = passes.findLastIndex(({ layers }) => {
    experts += layers.reduce((sum, layer) => sum + layer.experts.length, 0);
    return experts > EXPERTS_HELD;
  });
  return passes.slice(Math.max(0, Math.min(first + 1, passes.length - 1), passes.length - PASSES_HELD));
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/** Before the attempt of this number (1: the first after the connection was lost): twice as long each time. In ms. */
export function pauseBeforeAttempt(attempt: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1));
}
