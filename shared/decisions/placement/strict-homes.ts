import type { Placement } from '../../wire/messages.js';

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
 * The workers of each expert of a layer. An expert goes to the worker with the highest score (rendezvous hashing) among those that have room: no
 * worker is the first home of more than its share. So when a worker leaves or comes, hardly more experts than its own move; main and shadow
 * agree without a message; and a restarted main finds the experts at the same workers.
 */
function layerHomes({ workers, experts, homes }: Placement, layer: number): (readonly string[])[] {
  const ids = workers.map(({ id }) => id);
  const found = Array.from({ length: experts }, (): string[] => []);
  const held = new Map(ids.map((id) => [id, 0]));
  for (let copy = 1; copy <= Math.min(homes, ids.length); copy += 1) {
    const share = Math.ceil((copy * experts) / ids.length);
    const pairs = found.flatMap((own, expert) =>
      ids.filter((id) => !own.includes(id)).map((id) => ({ expert, id, score: score(layer, expert, id) })),
    );
    pairs.sort((left, right) => right.score - left.score);
    for (const room of [share, Infinity]) {
      for (const { expert, id } of pairs) {
        const own = found[expert];
        const holds = held.get(id) ?? 0;
        if (own === undefined || own.length >= copy || holds >= room) continue;
        own.push(id);
        held.set(id, holds + 1);
      }
    }
  }
  return found;
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
