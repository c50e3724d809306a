import { isDeepStrictEqual } from 'node:util';
import { expertFormats } from '../../shared/model/expert-formats.js';
import { expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import { allExperts } from '../../shared/model/part-sizes.js';
import type { DraftHeadSource, ModelSource } from '../../shared/model/tensor-source.js';

/**
 * The number by which main and workers name the expert layer of the model's own head: the one behind the model's last expert layer. No placement, prediction or
 * list of held experts has it; homes and groups follow from it as from any other number of a layer.
 */
export function headLayerOf({ expertLayers }: Pick<ModelShape, 'expertLayers'>): number {
  return expertLayers;
}

/** The head, if slots for the model's experts hold the head's, too; null: there is none, it has no experts, or they are of another form. */
export function servableHead(source: ModelSource): DraftHeadSource | null {
  const head = source.draftHead ?? null;
  if (head === null || head.shape.expertLayers === 0) return null;
  const { experts, expert } = source.shape;
  if (head.shape.experts !== experts || expertRowSize(head.shape) !== expertRowSize(source.shape)) return null;
  if (!isDeepStrictEqual(head.shape.expert, expert)) return null;
  const formats = expertFormats(allExperts(source));
  const isKnown = (form: object): boolean => formats.some((known) => isDeepStrictEqual(known, form));
  return expertFormats(allExperts(head)).every(isKnown) ? head : null;
}

/** The model with the experts of its head as those of layer headLayerOf. */
export function withHeadLayer<Source extends ModelSource>(source: Source, head: DraftHeadSource | null): Source {
  if (head === null) return source;
  const headLayer = headLayerOf(source.shape);
  const expert: ModelSource['expert'] = (layer, index) =>
    layer === headLayer ? head.expert(0, index) : source.expert(layer, index);
  return { ...source, expert };
}
