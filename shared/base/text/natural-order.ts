const COLLATOR = new Intl.Collator('en', { numeric: true });

/** Compares two names as people count: "worker-2" comes before "worker-10". */
export function naturalOrder(left: string, right: string): number {
  return COLLATOR.compare(left, right);
}
