import type { DraftHead } from '../../engine/generation/draft-head.js';
import { type UsableDrafts, usableDrafts } from '../../shared/decisions/placement/draft-rows.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { DraftAcceptance } from '../drafting/draft-acceptance.js';
import { DraftTrial } from '../drafting/draft-trial.js';
import type { HeadExperts } from './head-experts.js';
import { lookupAcceptance } from './lookup-source.js';
import { engineHead, type EngineHead } from './mtp-source.js';

/** The drafts that the cluster can use, of those that the settings allow. */
export interface EngineDrafting extends UsableDrafts, Pick<NodeSettings['drafting'], 'optimistic' | 'source'> {
  /** How often lookup's drafts proved right, over all answers. */
  readonly lookup: DraftAcceptance;
  /** Time and tokens of passes with and without main's own drafts, over all answers. */
  readonly trial: DraftTrial;
  /** Null: the model's own head is not loaded. */
  readonly mtp: EngineHead | null;
}

export function draftsOf({ drafting, prediction, align, main }: NodeSettings): UsableDrafts {
  // A logical cache decides on a row once the row before has run: rows after it cannot run in the same pass.
  if (main.quality.kind === 'cached') return { shadowRows: 1, ownRows: 1 };
  return usableDrafts(drafting, prediction.source, align.tokenPeriod);
}

/** `head`: the model's own head; null: it is not loaded. `headExperts`: has workers run its experts; null: it has them itself. */
export function engineDrafting(
  settings: NodeSettings['drafting'],
  usable: UsableDrafts,
  head: DraftHead | null,
  headExperts: HeadExperts | null,
): EngineDrafting {
  const mtp = engineHead(head, headExperts);
  return { ...settings, ...usable, lookup: lookupAcceptance(), trial: new DraftTrial(), mtp };
}
