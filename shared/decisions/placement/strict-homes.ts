import type { Placement } from '../../wire/messages.js';

/** By placement: the homes of each layer's experts. What it says follows from the placement alone; this saves working it out again. */
const known = new WeakMap<Placement, (readonly string[])[][]>();

/** Each expert has workers of its own, which alone load it. */
export function isStrict({ homes }: Pick<Placement, 'homes'>): boolean {
  return homes > 0;
}

/** The workers that an expert has under a strict placement, the first one before its copies; all of them where there are no more workers. */
export function homesOf(placement: Placement, layer: number, expert: number): readonly string[] {
  let layers = known.get(placement);
  if (layers === undefined) known.set(placement, (layers = []));
  return (layers[layer] ??= layerHomes(placement, layer))[expert] ?? [];
}

/**
 * The workers of each expert of a layer. An expert goes to the worker that suits it best (rendezvous hashing) among those that have room: no
 * worker is the first home of more than its share. So a worker that leaves or comes moves hardly more experts than its own, main and shadow
 * agree without asking, and a main that is started again finds the experts where they were.
 */
function layerHomes({ workers, experts, homes }: Placement, layer: number): (readonly string[])[] {
  const ids = workers.map(({ id }) => id);
  const found = Array.from({ length: experts }, (): string[] => []);
  const held = new Map(ids.map((id) => [id, 0]));
  for (let copy = 1; copy <= Math.min(homes, ids.length); copy += 1) {
    const share = Math.ceil((copy * experts) / ids.length);
    const wishes = found.flatMap((own, expert) =>
      ids.filter((id) => !own.includes(id)).map((id) => ({ expert, id, score: score(layer, expert, id) })),
    );
    wishes.sort((left, right) => right.score - left.score);
    for (const room of [share, Infinity]) {
      for (const { expert, id } of wishes) {
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

/** How well a worker suits an expert: a number below 2^32 that looks drawn, always the same. */
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
