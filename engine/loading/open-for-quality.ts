/** Opens a model for the quality in which it is to answer. */
import { openAnyPack, type Pack } from '../../packs/format/open-pack.js';
import type { SliceSet } from '../../packs/format/pack-layout.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { hasSlices, hasUnfinishedSlices, slicesOf, type Slices } from '../../packs/slices/open-slices.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { SequenceRules } from '../../shared/decisions/slices/logical-sequence.js';
import { otherChoiceProblem, routersOf } from '../../shared/decisions/slices/output-weights.js';
import {
  alternatives,
  precisionRule,
  type PrecisionRule,
  type SlicedQuality,
} from '../../shared/decisions/slices/plan-readings.js';
import type { DecisionRules } from '../../shared/decisions/slices/sequence-decisions.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { storedPartBytes } from '../../shared/model/part-sizes.js';
import { PAIR_TEXTS, qualityText, type Quality } from '../../shared/settings/quality.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** The slices that stand in the place of a model's experts, and the rule by which executions read them. */
export interface RuledSlices {
  readonly slices: Slices;
  readonly rule: PrecisionRule;
}

export interface OpenedModel {
  readonly source: ModelSource;
  /** Null: experts are computed as they were shipped. */
  readonly sliced: RuledSlices | null;
}

/**
 * Opens the model in `directory`. Sliced experts come from a pack, which then needs no lossless ones.
 * @throws USAGE for a quality that the model or this odmoe does not offer, PACK_INCOMPLETE if the pack has no slices; else as openModelSource
 */
export async function openForQuality(directory: string, quality: Quality): Promise<OpenedModel> {
  if (quality.kind === 'exact') return { source: await openModelSource(directory), sliced: null };
  const source = await openModelSource(directory, openAnyPack);
  if (source.kind === 'checkpoint') {
    const pair = PAIR_TEXTS[quality.split];
    throw new OdmoeError(
      'USAGE',
      `${source.directory}: is a checkpoint, and ${qualityText(quality)} computes with the slices of a pack: make one with ` +
        `"odmoe pack ${directory} PACK_DIR --slices ${pair}"`,
    );
  }
  return { source, sliced: await slicesForQuality(source, quality) };
}

/**
 * Opens the slices of a pack with which experts of this quality are computed, and finds the rule by which executions read them.
 * @throws USAGE if the pack has other slices, or no threshold for the quality; PACK_INCOMPLETE if it has none; else as slicesOf
 */
export async function slicesForQuality(pack: Pack, quality: SlicedQuality): Promise<RuledSlices> {
  const { directory } = pack;
  if (!(await hasSlices(pack))) {
    const [lack, remedy] = (await hasUnfinishedSlices(pack))
      ? ['the slices are unfinished', 'go on with them by']
      : ['has no slices', 'add them with'];
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      `${directory}: ${lack}, which ${qualityText(quality)} computes with: ${remedy} ` +
        `"odmoe pack ${directory} ${directory} --slices ${PAIR_TEXTS[quality.split]}"`,
    );
  }
  const problem = quality.kind === 'cached' ? otherChoiceProblem(pack.shape) : null;
  if (problem !== null) {
    throw new OdmoeError(
      'USAGE',
      `${directory}: ${qualityText(quality)} may choose other experts than the router, and that is not defined for this model: ${problem}; ` +
        `give ${alternatives(quality)}`,
    );
  }
  return ruledSlices(await slicesOf(pack, slicesRead(quality)), quality);
}

/** The rules by which a sequence's logical cache decides; null: the quality has none. The cache counts slices as they are stored. */
export function decisionRules({ slices, rule }: RuledSlices, shape: ModelShape): DecisionRules | null {
  if (rule.kind !== 'cached') return null;
  const { exponent: upperBytes, signMantissa: lowerBytes } = storedPartBytes(slices.expert(0, 0));
  const { expertLayers: layers, experts, expertsPerToken } = shape;
  const cache = {
    layers,
    experts,
    capacityBytes: rule.cacheBytes,
    upperBytes,
    lowerBytes,
  };
  const sequence: SequenceRules = {
    cache,
    expertsPerToken,
    routing: rule.routing,
    lowerFetch: rule.lowerFetch,
    theta: rule.theta,
    missTarget: rule.missShare,
    start: 'warm',
    seed: 0,
  };
  return { sequence, routers: routersOf(shape) };
}

/** The slices that executions of this quality read. */
export function slicesRead({ kind }: SlicedQuality): SliceSet {
  return kind === 'low' ? 'upper' : 'both';
}

/** @throws USAGE if the slices are not those of this quality, or have no threshold for it */
export function ruledSlices(slices: Slices, quality: SlicedQuality): RuledSlices {
  const { directory } = slices;
  const wanted = qualityText(quality);
  const pair = PAIR_TEXTS[quality.split];
  if (slices.split !== quality.split) {
    throw new OdmoeError(
      'USAGE',
      `${directory}: has slices (${PAIR_TEXTS[slices.split]}), and ${wanted} needs (${pair}): ask for these, or make another pack ` +
        `with "--slices ${pair}"`,
    );
  }
  const found = precisionRule(quality, slices.manifest.theta);
  if ('rule' in found) return { slices, rule: found.rule };
  throw new OdmoeError('USAGE', `${directory}: ${wanted}: ${found.problem}`);
}
