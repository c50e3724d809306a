/** Opens a model for the quality in which it is to answer. */
import { openAnyPack } from '../../packs/format/open-pack.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { hasSlices, slicesOf, type Slices } from '../../packs/slices/open-slices.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { precisionRule, type PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
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
  const wanted = qualityText(quality);
  const pair = PAIR_TEXTS[quality.split];
  if (source.kind === 'checkpoint') {
    throw new OdmoeError(
      'USAGE',
      `${source.directory}: is a checkpoint, and ${wanted} computes with the slices of a pack: make one with ` +
        `"odmoe pack ${directory} PACK_DIR --slices ${pair}"`,
    );
  }
  if (!(await hasSlices(source))) {
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      `${source.directory}: has no slices, which ${wanted} computes with: add them with ` +
        `"odmoe pack ${directory} ${directory} --slices ${pair}"`,
    );
  }
  const slices = await slicesOf(source);
  if (slices.split !== quality.split) {
    throw new OdmoeError(
      'USAGE',
      `${source.directory}: has slices (${PAIR_TEXTS[slices.split]}), and ${wanted} needs (${pair}): ask for these, or make another pack ` +
        `with "--slices ${pair}"`,
    );
  }
  const found = precisionRule(quality, slices.manifest.theta);
  if ('rule' in found) return { source, sliced: { slices, rule: found.rule } };
  throw new OdmoeError('USAGE', `${source.directory}: ${wanted}: ${found.problem}`);
}
