import type { SlicesDescription } from '../../shared/wire/messages.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { recordOf } from '../../shared/model/expert-parts.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Pack } from '../format/open-pack.js';
import type { ExpertExtent } from '../format/extents.js';
import { HeldExperts } from '../format/held-experts.js';
import { type Slice, SLICES, SLICES_FILE, slicesOfSet } from '../format/pack-layout.js';
import type { Slices } from '../slices/open-slices.js';
import { sliceExtents } from '../slices/slice-extents.js';
import type { SlicesManifest } from '../slices/slices-manifest.js';

/** The slices that a daemon serves: all of them, the upper ones alone, or those that it has fetched until now. */
export interface ServedSlices {
  readonly directory: string;
  readonly digest: string;
  readonly manifest: SlicesManifest;
  /** Name of the file with the bytes of slices.json. */
  readonly manifestFile: string;
  readonly held: Readonly<Record<Slice, HeldExperts>>;
}

/** The slices that are opened. A daemon that has opened the upper ones alone does not serve lower ones. */
export function servedSlices({ directory, digest, manifest, opened }: Slices, shape: ModelShape): ServedSlices {
  const { expertLayers: layers, experts } = shape;
  const held = recordOf(SLICES, (slice) =>
    slicesOfSet(opened).includes(slice) ? HeldExperts.all(layers, experts) : HeldExperts.none(layers, experts),
  );
  return { directory, digest, manifest, manifestFile: SLICES_FILE, held };
}

/** Opens the slices in the directory of a pack; null: it has none. */
export type OpenSlices = (pack: Pack) => Promise<Slices | null>;

/** The slices that a daemon serves beside its pack. Damaged ones are not served, and the daemon does without: exact answers need none. */
export async function slicesToServe(open: OpenSlices, pack: Pack, log: Logger): Promise<ServedSlices | null> {
  try {
    const slices = await open(pack);
    return slices && servedSlices(slices, pack.shape);
  } catch (thrown) {
    log.warn('the slices of the pack are not served', { directory: pack.directory, error: toOdmoeError(thrown) });
    return null;
  }
}

/** Looks up what peers ask for of a daemon's slices. */
export class SlicesTable {
  readonly sizes: ReadonlyMap<string, number>;
  private readonly extents: Readonly<Record<Slice, readonly ExpertExtent[]>>;

  constructor(readonly served: ServedSlices) {
    this.sizes = new Map(served.manifest.files.map((file) => [file.name, file.size_bytes]));
    this.extents = recordOf(SLICES, (slice) => sliceExtents(served.manifest, slice));
  }

  describe(): SlicesDescription {
    const { digest, held } = this.served;
    return { digest, heldUpper: held.upper.toBits(), heldLower: held.lower.toBits() };
  }

  /** An expert with bytes in this part of the file, whose slice is not here; undefined: there is none. */
  missing(file: string, offsetBytes: number, endBytes: number): ExpertExtent | undefined {
    for (const slice of SLICES) {
      const held = this.served.held[slice];
      const found = missingExpert(this.extents[slice], held, { file, offsetBytes, endBytes });
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

/** The first expert with bytes in this part of the file that is not held. */
export function missingExpert(
  extents: readonly ExpertExtent[],
  held: HeldExperts,
  { file, offsetBytes, endBytes }: { file: string; offsetBytes: number; endBytes: number },
): ExpertExtent | undefined {
  return extents.find(
    (extent) =>
      extent.file === file &&
      extent.offsetBytes < endBytes &&
      extent.endBytes > offsetBytes &&
      !held.has(extent.layer, extent.expert),
  );
}
