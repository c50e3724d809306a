import type { ModelDescription } from '../../packs/describe-model.js';

/** "bf16", or "q4_k 83 %, q6_k 17 %" for experts of several formats: shares of their weights, none of them said to be nothing or all. */
export function formatLine({
  shippedFormat,
  expertFormats,
}: Pick<ModelDescription, 'shippedFormat' | 'expertFormats'>): string {
  if (expertFormats.length < 2) return shippedFormat;
  const percent = (share: number): number => Math.min(99, Math.max(1, Math.round(100 * share)));
  return expertFormats.map(({ format, share }) => `${format} ${percent(share)} %`).join(', ');
}
