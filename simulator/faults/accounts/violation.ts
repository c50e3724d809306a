/** A broken invariant: a condition that must always hold. */
export interface Violation {
  invariant: string;
  detail: string;
}
