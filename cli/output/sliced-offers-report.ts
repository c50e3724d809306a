import type { SlicedOffer } from '../../engine/planning/sliced-offers.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { tableLines } from './table.js';

/** A sliced offer as a plan expects it to run, beside the lossless experts of the plan itself. */
export interface PlannedOffer {
  offer: SlicedOffer;
  expertBytes: number;
  /** Its bytes over those of a lossless expert. */
  bytesShare: number;
  /** How many times as fast as the lossless plan it is. */
  speedup: number;
}

export function offersObject(offers: readonly PlannedOffer[]): object[] {
  return offers.map(({ offer, expertBytes, bytesShare, speedup }) => ({
    quality: offer.quality,
    expertBytes,
    bytesShare,
    speedup,
    loss: offer.loss,
    lossMeasuredOn: offer.lossMeasuredOn,
  }));
}

/** A table of all offers. `faster`: what is meant by speed. */
export function offerLines(offers: readonly PlannedOffer[], faster: string): string[] {
  const right = (title: string): { title: string; align: 'right' } => ({ title, align: 'right' });
  const rows = offers.map(({ offer: { quality, loss }, expertBytes, bytesShare, speedup }) => [
    quality,
    formatBytes(expertBytes),
    `${(bytesShare * 100).toFixed(0)} %`,
    `${speedup.toFixed(2)} times`,
    loss.toExponential(1),
  ]);
  const isOwn = offers.every(({ offer: { lossMeasuredOn } }) => lossMeasuredOn === 'this model');
  return [
    `Or sliced experts (odmoe pack --slices; --quality), which change answers; ${faster}:`,
    ...tableLines(
      [{ title: 'quality', align: 'left' }, ...['expert', 'of lossless', 'speed', 'loss'].map(right)],
      rows,
    ),
    'Loss: KL(lossless || sliced), mean over predicted tokens, as "odmoe bench slices" measured it with ' +
      (isOwn ? 'this model.' : "odmoe's demo model. It was not measured with this model, whose loss may be another."),
  ];
}
