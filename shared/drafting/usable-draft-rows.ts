/** What predicts the experts that workers load. */
export type PredictionSource = 'sep' | 'random' | 'off';

/**
 * Positions that a decode pass can have where `rows` are wanted. Drafts are what shadow expects behind main's tokens: there are none
 * where nobody predicts, or where shadow goes its own way because it does not get every token of main's (`alignTokenPeriod`, in
 * iterations; 0: never).
 */
export function usableDraftRows(
  rows: number | 'auto',
  predictionSource: PredictionSource,
  alignTokenPeriod: number,
): number | 'auto' {
  return predictionSource === 'sep' && alignTokenPeriod === 1 ? rows : 1;
}
