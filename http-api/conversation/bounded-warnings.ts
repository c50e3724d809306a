/** Most texts in the `warnings` of an answer. */
export const WARNINGS_LIMIT = 32;

/** The warnings of an answer, of which a request may cause thousands. The last one counts those that are left out. */
export function boundedWarnings(warnings: readonly string[]): readonly string[] {
  if (warnings.length <= WARNINGS_LIMIT) return warnings;
  const shown = warnings.slice(0, WARNINGS_LIMIT - 1);
  return [...shown, `${warnings.length - shown.length} other wishes of this request are not kept, too`];
}
