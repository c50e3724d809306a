import type { Placement } from '../../wire/messages.js';
import { keeperOf, keepsExperts } from './kept-experts.js';

/** The homes of each layer's experts, by placement. They follow from the placement alone; the map saves a second computation. */
const known = new WeakMap<Placement, (readonly string[])[][]>();

/** Each expert has strict homes: only these workers load it. */
export function isStrict({ homes }: Pick<Placement, 'homes'>): boolean {
  return homes > 0;
}

/** The workers of an expert under a strict placement, the first home before its copies. If there are too few workers, all of them. */
export function strictHomesOf(placement: Placement, layer: number, expert: number): readonly string[] {
  let layers = known.get(placement);
  if (layers === undefined) known.set(placement, (layers = []));
  return (layers[layer] ??= layerHomes(placement, layer))[expert] ?? [];
}

/**
 * The workers of each expert of a layer. An expert that a worker keeps has its first home there. Each other one goes to the worker with the highest
 * score (rendezvous hashing) among those that keep none and have room: no worker is the first home of more than its share. So when a worker leaves or
 * comes, or its share changes, hardly more experts move than must; main and shadow agree without a message; and a restarted main finds the experts at
 * the same workers. Shares count as rankByShare says. Copies go to the workers that keep none, too, as long as there are enough.
 */
function layerHomes(placement: Placement, layer: number): (readonly string[])[] {
  const { workers, experts, homes } = placement;
  const sharing = workers.filter((worker) => !keepsExperts(worker));
  const keepers = workers.filter(keepsExperts).map(({ id }) => id);
  const found = Array.from({ length: experts }, (_, expert): string[] => {
    const keeper = keepers.length === 0 ? null : keeperOf(placement, layer, expert);
    return keeper === null ? [] : [keeper];
  });
  const kept = found.filter(({ length }) => length > 0).length;
  const shares = new Map(sharing.map(({ id, homeShare = 0 }) => [id, Math.max(1, homeShare)]));
  const wanted = Math.min(homes, workers.length);
  shareHomes({ found, shares, layer, wanted, kept });
  // If too few workers share, the others have copies, too.
  for (const own of found) {
    const more = keepers.filter((id) => !own.includes(id));
    own.push(...more.slice(0, Math.max(0, wanted - own.length)));
  }
  return found;
}

interface HomesToShare {
  /** The homes of each expert so far; more are added. */
  found: string[][];
  /** The share of each worker that may get some. */
  shares: ReadonlyMap<string, number>;
  layer: number;
  /** Number of homes of each expert. */
  wanted: number;
  /** Experts that have their first home already. */
  kept: number;
}

function shareHomes({ found, shares, layer, wanted, kept }: HomesToShare): void {
  const ids = [...shares.keys()];
  const shareOf = (id: string): number => shares.get(id) ?? 1;
  const allShares = ids.reduce((sum, id) => sum + shareOf(id), 0);
  const held = new Map(ids.map((id) => [id, 0]));
  for (let copy = 1; copy <= wanted; copy += 1) {
    const roomOf = (id: string): number => Math.ceil(((copy * found.length - kept) * shareOf(id)) / allShares);
    const pairs = found.flatMap((own, expert) =>
      ids
        .filter((id) => !own.includes(id))
        .map((id) => ({ expert, id, rank: rankByShare(score(layer, expert, id), shareOf(id)) })),
    );
    pairs.sort((left, right) => left.rank - right.rank);
    for (const isBounded of [true, false]) {
      for (const { expert, id } of pairs) {
        const own = found[expert];
        const holds = held.get(id) ?? 0;
        if (own === undefined || own.length >= copy || (isBounded && holds >= roomOf(id))) continue;
        own.push(id);
        held.set(id, holds + 1);
      }
    }
  }
}

/**
 * Weighted rendezvous hashing: the worker with the least rank takes the expert, and each does so with a probability in proportion to its share.
 * With equal shares the rank falls as the score rises. Only the four basic operations are used, which give the same bits on every machine.
 */
function rankByShare(score: number, share: number): number {
  return negatedLogarithm((score + 0.5) / SCORES) / share;
}

/** All scores are below this, 2^32. */
const SCORES = 4_294_967_296;
/** Terms of the series; the first one that is left out is below 1e-16. */
const TERMS = 16;

/** -ln of a number between 0 and 1. The series is that of artanh((m - 1) / (m + 1)), which is half the logarithm of m. */
function negatedLogarithm(number: number): number {
  let halvings = 0;
  let mantissa = number;
  for (; mantissa < 1; mantissa *= 2) halvings += 1;
  const ratio = (mantissa - 1) / (mantissa + 1);
  let [sum, power] = [0, ratio];
  for (let term = 0; term < TERMS; term += 1) {
    sum += power / (2 * term + 1);
    power *= ratio * ratio;
  }
  return halvings * Math.LN2 - 2 * sum;
}

/** Score of a worker for an expert: a pseudo-random number below 2^32 that is always the same. */
function score(layer: number, expert: number, id: string): number {
  let hash = 0x811c9dc5;
  const mix = (value: number): void => {
    hash = Math.imul(hash ^ value, 0x01000193);
  };
  for (let index = 0; index < id.length; index += 1) mix(id.charCodeAt(index));
  for (const value of [layer, expert]) for (let byte = 0; byte < 4; byte += 1) mix((value >>> (8 * byte)) & 0xff);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
