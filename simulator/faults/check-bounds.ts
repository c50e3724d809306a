import { REMEMBERED_RANGES } from '../../shadow-node/predictor/alignment.js';
import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import { MAIN, type Scenario } from './scenario.js';

/** Passes of an answer that shadow may have to know of: those that main has finished and still names, the one it is in, and what is ahead. */
const KNOWN_PASSES = REMEMBERED_RANGES + 3;
/** The deepest of the tiny models. */
const MOST_LAYERS = 4;
/** What is remembered of positions and passes apart from the rows of the passes that are known. */
const OTHERS = 4;
/** Before the names of what main's own worker holds. */
const OF_OWN_WORKER = 'ownWorker.';

/** What a node may remember of one answer in the making, however long that is. */
function bounds({ nodes }: Scenario): Readonly<Record<string, number>> {
  const rows = nodes[0]?.settings.drafting.rows ?? 1;
  const mostRows = rows === 'auto' ? MAX_DRAFT_ROWS : rows;
  return {
    // Positions and the passes that they belong to.
    positions: 2 * KNOWN_PASSES * mostRows + OTHERS,
    drafts: 2 * mostRows + OTHERS,
    keptDrafts: 2 * mostRows + OTHERS,
    keptPredictions: KNOWN_PASSES * MOST_LAYERS,
  };
}

/** While answers are made: what grows with an answer and should not. `main` holds the sequences, others some of them. */
export function checkBounds(cluster: SimulatedCluster, scenario: Scenario): string[] {
  const allowed = bounds(scenario);
  const sequences = Math.max(1, cluster.nodes.get(MAIN)?.openCounts()?.['sequences'] ?? 1);
  const problems: string[] = [];
  for (const node of cluster.nodes.values()) {
    for (const [name, count] of Object.entries(node.openCounts() ?? {})) {
      const most =
        (allowed[name.replace(OF_OWN_WORKER, '')] ?? Infinity) *
        Math.max(sequences, node.openCounts()?.['sequences'] ?? 0);
      if (count > most)
        problems.push(`${node.id} remembers ${count} ${name} for ${sequences} sequences, and ${most} may be`);
    }
  }
  return problems;
}
