import type { NodeView } from '../../shared/wire/cluster-events.js';
import { formatShare } from '../format/quantities.js';

/** The state of a node in words: "up", "may go", "fetching 38 %". */
export function stateWords({ state, fetch }: Pick<NodeView, 'state' | 'fetch'>): string {
  if (state === 'mayGo') return 'may go';
  if (state !== 'fetching' || fetch === null || fetch.neededBytes === 0) return state;
  return `fetching ${formatShare(fetch.heldBytes / fetch.neededBytes)}`;
}
