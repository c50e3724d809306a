/** How a sequence's logical cache chooses experts and fetches lower slices, and the texts by which a quality names both. */

/** `kept`: as many of the best experts (J) are chosen in any case. */
export type Routing =
  | { readonly kind: 'top-k' }
  /** Cached experts are preferred among the fewest best ones whose scores sum to at least `mass`, with all scores summing to 1. */
  | { readonly kind: 'cumulative'; readonly mass: number; readonly kept: number }
  /** A cached expert's logit grows by lambda times the mean range of this layer's logits so far. */
  | { readonly kind: 'cache-prior'; readonly lambda: number; readonly kept: number };

/**
 * A critical execution whose lower slice is not there: `wait` fetches it, and the execution runs high; `background` fetches it for later steps, and
 * the execution runs low; `never` fetches nothing.
 */
export type LowerFetch = 'wait' | 'background' | 'never';

export interface LogicalRules {
  readonly lowerFetch: LowerFetch;
  readonly routing: Routing;
}

/** The rules of a quality that names none. */
export const USUAL_RULES: LogicalRules = { lowerFetch: 'wait', routing: { kind: 'top-k' } };

export const LOWER_FETCHES: readonly LowerFetch[] = ['wait', 'background', 'never'];

export const RULES_FORMS =
  'dbsc=wait (or background, never) and routing=top-k (or cumulative(p,J), cache-prior(lambda,J))';

/** Reads what follows `miss=P`: nothing, `,dbsc=...`, `,routing=...`, or both in this order. */
export function readRules(text: string): { readonly rules: LogicalRules } | { readonly problem: string } {
  const [, dbsc = USUAL_RULES.lowerFetch, routed = 'top-k', rest] =
    /^(?:,dbsc=([^,]*))?(?:,routing=([^,(]*(?:\([^)]*\))?))?(.*)$/.exec(text) ?? [];
  if (rest !== '') return { problem: `"${text}" is not known; expected ${RULES_FORMS}, in this order` };
  const lowerFetch = LOWER_FETCHES.find((one) => one === dbsc);
  if (lowerFetch === undefined) return { problem: `dbsc is ${LOWER_FETCHES.join(', ')}, not "${dbsc}"` };
  const routing = readRouting(routed);
  if (routing !== null) return { rules: { lowerFetch, routing } };
  return {
    problem:
      `routing is top-k, cumulative(p,J) or cache-prior(lambda,J), not "${routed}": p is a share between 0 and 1, lambda a number above 0 and below ` +
      `1000, both with at most 6 decimals, and J, from 0 to 99, says how many of the best experts are chosen in any case, as in cumulative(0.9,1)`,
  };
}

/** The one text of the rules; rules that are usual are not named. */
export function rulesText({ lowerFetch, routing }: LogicalRules): string {
  const fetching = lowerFetch === USUAL_RULES.lowerFetch ? '' : `,dbsc=${lowerFetch}`;
  if (routing.kind === 'top-k') return fetching;
  const number = routing.kind === 'cumulative' ? routing.mass : routing.lambda;
  return `${fetching},routing=${routing.kind}(${number},${routing.kept})`;
}

function readRouting(text: string): Routing | null {
  if (text === 'top-k') return { kind: 'top-k' };
  const [, kind, first, second] = /^(cumulative|cache-prior)\((\d{1,3}(?:\.\d{1,6})?),(\d{1,2})\)$/.exec(text) ?? [];
  const [number, kept] = [Number(first), Number(second)];
  if (kind === 'cumulative' && number > 0 && number < 1) return { kind, mass: number, kept };
  if (kind === 'cache-prior' && number > 0) return { kind, lambda: number, kept };
  return null;
}
