import type { SlicedSplit } from '../model/tensor-source.js';
import { SLICE_BITS } from '../model/weight-dtype.js';
import { recordOf } from '../model/expert-parts.js';
import { parseByteSize } from '../base/text/byte-size.js';
import { readRules, RULES_FORMS, rulesText, type LogicalRules } from './logical-rules.js';

/** How exactly the routed experts are computed. All else of a model is computed as shipped. */
export type Quality =
  | { readonly kind: 'exact' }
  /** Every execution reads both slices, or the upper one alone. */
  | { readonly kind: 'high' | 'low'; readonly split: SlicedSplit }
  /** Critical executions read both slices. `share`: the wanted share of critical executions. */
  | { readonly kind: 'critical'; readonly split: SlicedSplit; readonly share: number }
  /** Precision and routing follow a logical cache. `missShare`: most bytes fetched, of the bytes that a system without slices asks for. */
  | ({
      readonly kind: 'cached';
      readonly split: SlicedSplit;
      readonly cacheBytes: number;
      readonly missShare: number;
    } & LogicalRules);

export const EXACT_QUALITY: Quality = { kind: 'exact' };

export type ReadQuality = { readonly quality: Quality } | { readonly problem: string };

const SLICED_SPLITS = Object.keys(SLICE_BITS) as SlicedSplit[];

/** "8,4": the bits of a code, and those of its upper slice. */
export const PAIR_TEXTS: Readonly<Record<SlicedSplit, string>> = recordOf(
  SLICED_SPLITS,
  (split) => `${2 * SLICE_BITS[split]},${SLICE_BITS[split]}`,
);

export const QUALITY_FORMS =
  'exact, sliced(h,l), sliced(h,l,low), sliced(h,l,critical=Q) or sliced(h,l,cached=BYTES,miss=P), ' +
  `with h,l one of ${SLICED_SPLITS.map((split) => PAIR_TEXTS[split]).join('; ')}; behind miss=P may stand ${RULES_FORMS}`;

/** Reads the text of a quality. It has no spaces, except in a size such as "1.8 GB". */
export function readQuality(text: string): ReadQuality {
  if (text === 'exact') return { quality: EXACT_QUALITY };
  const [, pair, rest = ''] = /^sliced\((\d+,\d+)(?:,(.+))?\)$/.exec(text) ?? [];
  if (pair === undefined) return { problem: `expected ${QUALITY_FORMS}` };
  const split = SLICED_SPLITS.find((one) => PAIR_TEXTS[one] === pair);
  if (split === undefined) return { problem: `no experts are sliced as (${pair}); expected ${QUALITY_FORMS}` };
  if (rest === '') return { quality: { kind: 'high', split } };
  if (rest === 'low') return { quality: { kind: 'low', split } };
  const [, critical] = /^critical=(.*)$/.exec(rest) ?? [];
  if (critical !== undefined) return readCritical(split, critical);
  const [, cached, miss, rules = ''] = /^cached=([^,]*),miss=([^,]*)(.*)$/.exec(rest) ?? [];
  if (cached !== undefined && miss !== undefined) return readCached(split, { cached, miss, rules });
  return { problem: `"${rest}" is not known; expected ${QUALITY_FORMS}` };
}

/** The one text of a quality: readQuality gives the same quality again. */
export function qualityText(quality: Quality): string {
  if (quality.kind === 'exact') return 'exact';
  const pair = PAIR_TEXTS[quality.split];
  switch (quality.kind) {
    case 'high':
      return `sliced(${pair})`;
    case 'low':
      return `sliced(${pair},low)`;
    case 'critical':
      return `sliced(${pair},critical=${quality.share})`;
    case 'cached':
      return `sliced(${pair},cached=${quality.cacheBytes},miss=${quality.missShare}${rulesText(quality)})`;
  }
}

function readCritical(split: SlicedSplit, text: string): ReadQuality {
  const share = readShare(text);
  if (share !== null) return { quality: { kind: 'critical', split, share } };
  const pair = PAIR_TEXTS[split];
  return {
    problem:
      `critical is a share between 0 and 1 with at most 6 decimals, such as 0.3, not "${text}"; ` +
      `for 0 say sliced(${pair},low), for 1 sliced(${pair})`,
  };
}

function readCached(
  split: SlicedSplit,
  { cached, miss, rules }: Readonly<Record<'cached' | 'miss' | 'rules', string>>,
): ReadQuality {
  const cacheBytes = parseByteSize(cached);
  if (cacheBytes === null || cacheBytes === 0) {
    return { problem: `cached is a size above 0, such as 1.8GB or a number of bytes, not "${cached}"` };
  }
  const missShare = readShare(miss);
  if (missShare === null) {
    return { problem: `miss is a share between 0 and 1 with at most 6 decimals, such as 0.05, not "${miss}"` };
  }
  const read = readRules(rules);
  if ('problem' in read) return read;
  return { quality: { kind: 'cached', split, cacheBytes, missShare, ...read.rules } };
}

/** A number above 0 and below 1; null: the text is none. */
function readShare(text: string): number | null {
  if (!/^0\.\d{1,6}$/.test(text)) return null;
  const share = Number(text);
  return share > 0 ? share : null;
}

/** True for the arithmetic of exact answers. Main states it as an empty text, and one of release 0.2 states none. */
export function isExact(arithmetic: string): boolean {
  return arithmetic === 'exact' || arithmetic === '';
}

/** The name of an arithmetic that main has stated. */
export function arithmeticName(stated = ''): string {
  return isExact(stated) ? 'exact' : stated;
}
