/** Something that must always be so, and was not. */
export interface Violation {
  invariant: string;
  detail: string;
}
