import {
  REMEMBERED_FIGURES_S,
  type ClusterEvent,
  type ClusterData,
  type ExpertHeat,
  type FigureSample,
  type PassTimeline,
  type RecallView,
} from '../../shared/wire/cluster-events.js';

/** 'locked': main needs an API key first. 'lost': main tells nothing; the feed tries again. 'open': main has told something a moment ago. */
export type FeedConnection = 'connecting' | 'open' | 'lost' | 'locked';

/** The data that the views draw. Properties are replaced, never changed in place. */
export interface DashboardState {
  connection: FeedConnection;
  /** Since when main tells nothing, in ms since 1970 by the browser's clock; null: the connection is not lost. */
  silentSinceMs: number | null;
  /** Null: main has not sent it yet. */
  cluster: ClusterData | null;
  /** The oldest comes first. */
  samples: readonly FigureSample[];
  recall: RecallView | null;
  heat: ExpertHeat | null;
  /** The oldest comes first; some numbers may be missing. */
  passes: readonly PassTimeline[];
}

/** Most passes in the page. They are more than main sends at once, so that the user can step back. */
export const PASSES_HELD = 240;

/** Most experts of these passes together: a pass of many sequences runs thousands, and a phone has little memory. */
export const EXPERTS_HELD = 100_000;

export const EMPTY_STATE: DashboardState = {
  connection: 'connecting',
  silentSinceMs: null,
  cluster: null,
  samples: [],
  recall: null,
  heat: null,
  passes: [],
};

/**
 * Main sends everything again to a new listener, and may be another process than before. So earlier data is dropped. Main counts as silent until its
 * first event: a process that stands still can accept a connection.
 */
export function withOpenConnection(state: DashboardState): DashboardState {
  const { cluster, connection, silentSinceMs } = state;
  return { ...EMPTY_STATE, cluster, connection, silentSinceMs };
}

/** `lastEventMs`: when main told something for the last time, in ms since 1970. */
export function withSilence(state: DashboardState, lastEventMs: number): DashboardState {
  return { ...state, connection: 'lost', silentSinceMs: state.silentSinceMs ?? lastEventMs };
}

export function withEvent(before: DashboardState, event: ClusterEvent): DashboardState {
  const state: DashboardState = { ...before, connection: 'open', silentSinceMs: null };
  switch (event.type) {
    case 'cluster':
      return { ...state, cluster: event.cluster };
    case 'figures':
      return { ...state, samples: [...state.samples, ...event.samples].slice(-REMEMBERED_FIGURES_S) };
    case 'recall':
      return { ...state, recall: event.recall };
    case 'heat':
      return { ...state, heat: event.heat };
    case 'pass':
      return { ...state, passes: heldPasses([...state.passes, event.pass]) };
  }
}

/** The latest passes within these limits, at least one. */
function heldPasses(passes: readonly PassTimeline[]): readonly PassTimeline[] {
  let experts = 0;
  const first = passes.findLastIndex(({ layers }) => {
    experts += layers.reduce((sum, layer) => sum + layer.experts.length, 0);
    return experts > EXPERTS_HELD;
  });
  return passes.slice(Math.max(0, Math.min(first + 1, passes.length - 1), passes.length - PASSES_HELD));
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

/** The pause before an attempt to connect, in ms. Attempt 1 is the first after a loss. The pause doubles at each attempt, up to a limit. */
export function pauseBeforeAttempt(attempt: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1));
}
