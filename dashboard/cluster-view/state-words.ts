import type { NodeView } from '../../shared/wire/cluster-events.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { formatShare } from '../format/quantities.js';

type StateOfNode = Pick<NodeView, 'state' | 'fetch' | 'othersLackBytes'>;

/** The state of a node in words: "up", "may go", "fetching 38 %", "drained; others fetch 1.20 GB first". */
export function stateWords({ state, fetch, othersLackBytes }: StateOfNode): string {
  if (state === 'mayGo')
    return othersLackBytes > 0 ? `drained; others fetch ${formatBytes(othersLackBytes)} first` : 'may go';
  if (state !== 'fetching' || fetch === null || fetch.neededBytes === 0) return state;
  return `fetching ${formatShare(fetch.heldBytes / fetch.neededBytes)}`;
}
