/** A no, in words for the person at the other end: what was refused, why, and what to do. */
export interface Refusal {
  readonly refusal: string;
}

/** True if the function refused. No other result of trust has a property of this name. */
export function isRefusal(result: object): result is Refusal {
  return 'refusal' in result;
}
