import { headLayerOf, servableHead, withHeadLayer } from '../../engine/loading/head-layer.js';
import type { RuledSlices } from '../../engine/loading/open-for-quality.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { DraftHeadSource, ModelSource } from '../../shared/model/tensor-source.js';
import type { ExpertSupply } from './expert-loader.js';

/** The model's own head, whose experts the worker runs as those of one more layer. */
export interface ServedHead {
  readonly source: DraftHeadSource;
  readonly layer: number;
  /** Its experts are on the disk: they come with the last files of a pack that is fetched. */
  readonly isHere: boolean;
}

/**
 * Null: the settings leave the head's experts to main, so that slots and caches need not count them; the pack has no head that the slots could hold; or
 * the experts are sliced.
 */
export function servedHead(
  { source: pack, sliced }: { source: ModelSource; sliced: RuledSlices | null },
  supply: { readonly isPartial: boolean },
  { headExperts }: Pick<NodeSettings['drafting'], 'headExperts'>,
): ServedHead | null {
  const source = sliced === null && headExperts !== 'main' ? servableHead(pack) : null;
  if (source === null) return null;
  return {
    source,
    layer: headLayerOf(pack.shape),
    get isHere() {
      return !supply.isPartial;
    },
  };
}

/** The places from which a worker of this head loads. The supply knows the model's experts alone: damaged ones of the head are not fetched again. */
export function besideHead(
  head: ServedHead | null,
  source: ModelSource,
  supply: ExpertSupply,
): { source: ModelSource; supply: ExpertSupply; headLayer: number | null } {
  if (head === null) return { source, supply, headLayer: null };
  const isOfHead = (layer: number): boolean => layer === head.layer;
  const beside: ExpertSupply = {
    find: (layer, expert, slices) => (isOfHead(layer) ? null : supply.find(layer, expert, slices)),
    awaitExpert: (layer, expert, signal, slices) =>
      isOfHead(layer) ? null : supply.awaitExpert(layer, expert, signal, slices),
    forget: (layer, expert, slices) =>
      isOfHead(layer) ? Promise.reject(damaged(expert)) : supply.forget(layer, expert, slices),
  };
  return { source: withHeadLayer(source, head.source), supply: beside, headLayer: head.layer };
}

function damaged(expert: number): OdmoeError {
  return new OdmoeError(
    'PACK_CORRUPT',
    `expert ${expert} of the draft head is damaged: copy the pack again; meanwhile other workers run it`,
  );
}
