import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure, type FileErrors } from '../../shared/base/files/read-file.js';
import { expertExtents, type ExpertExtent } from '../format/extents.js';
import { HeldExperts } from '../format/held-experts.js';
import type { Pack } from '../format/open-pack.js';
import { FETCH_MANIFEST_FILE, MANIFEST_FILE } from '../format/pack-layout.js';
import { PACK_PIECE_BYTES } from '../../shared/wire/limits.js';
import type { PackDescription, PackPiece, ReadManifestRequest, ReadPackRequest } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** Most readers that a daemon serves at a time. Each costs an open file and a few pack pieces of PACK_PIECE_BYTES. */
export const MAX_PACK_READERS = 16;

const READ_ERRORS: FileErrors = {
  missing: 'PACK_INCOMPLETE',
  invalid: 'PACK_CORRUPT',
  remedy: 'ask another node for it',
};

/**
 * Serves pack pieces of the daemon's pack to peers, straight from its files and at the reader's pace. `held`: the experts on the disk of a pack that
 * is still being fetched; null: the pack is whole.
 */
export class PackServer {
  private readonly pack: Pack;
  private readonly runtime: Runtime;
  private readonly held: () => HeldExperts | null;
  private readonly all: HeldExperts;
  private readonly sizes: ReadonlyMap<string, number>;
  private readonly extents: readonly ExpertExtent[];
  private readers = 0;

  constructor(pack: Pack, runtime: Runtime, held: () => HeldExperts | null = () => null) {
    this.pack = pack;
    this.runtime = runtime;
    this.held = held;
    this.all = HeldExperts.all(pack.shape.expertLayers, pack.shape.experts);
    this.sizes = new Map(pack.manifest.files.map((file) => [file.name, file.size_bytes]));
    this.extents = expertExtents(pack.manifest);
  }

  describe(): PackDescription {
    const { expertLayers: layers, experts } = this.pack.shape;
    const held = this.held();
    return {
      packDigest: this.pack.packDigest,
      layers,
      experts,
      whole: held === null,
      heldExperts: (held ?? this.all).toBits(),
    };
  }

  /** Sends the manifest to the end of its file; the reader checks it by its digest. @throws NODE_REFUSED, QUEUE_FULL, STORAGE_FAILED */
  async *manifest(
    { packDigest }: ReadManifestRequest,
    signal: AbortSignal,
  ): AsyncGenerator<PackPiece, void, undefined> {
    this.requireSamePack(packDigest);
    yield* this.packPieces(this.held() === null ? MANIFEST_FILE : FETCH_MANIFEST_FILE, 0, null, signal);
  }

  /** @throws NODE_REFUSED, PROTOCOL_VIOLATION (no such bytes in the pack), PACK_INCOMPLETE (not on this disk), QUEUE_FULL, STORAGE_FAILED */
  async *read(request: ReadPackRequest, signal: AbortSignal): AsyncGenerator<PackPiece, void, undefined> {
    const { packDigest, file, offsetBytes, lengthBytes } = request;
    this.requireSamePack(packDigest);
    this.requireStretch(file, offsetBytes, lengthBytes);
    this.requireHeld(file, offsetBytes, offsetBytes + lengthBytes);
    yield* this.packPieces(file, offsetBytes, lengthBytes, signal);
  }

  /** `lengthBytes` null: to the file's end. The bytes of a pack piece are valid until the next one is requested. */
  private async *packPieces(
    file: string,
    startBytes: number,
    lengthBytes: number | null,
    signal: AbortSignal,
  ): AsyncGenerator<PackPiece, void, undefined> {
    if (this.readers >= MAX_PACK_READERS) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `${this.readers} peers read the pack from here already: ask again, or another node`,
      );
    }
    this.readers += 1;
    const path = join(this.pack.directory, file);
    try {
      const handle = await this.runtime.outside(() => openFile(path));
      try {
        // One buffer for each reader: a pack piece is copied into its message before the next one is read.
        const buffer = Buffer.allocUnsafe(PACK_PIECE_BYTES);
        const end = lengthBytes === null ? Infinity : startBytes + lengthBytes;
        for (let offset = startBytes; offset < end && !signal.aborted;) {
          const position = offset;
          const wantedBytes = Math.min(buffer.length, end - position);
          const { bytesRead } = await this.runtime.outside(() => handle.read(buffer, 0, wantedBytes, position));
          if (bytesRead === 0 && lengthBytes !== null) throw shorter(path, offset);
          if (bytesRead === 0) return;
          offset += bytesRead;
          yield { bytes: buffer.subarray(0, bytesRead) };
        }
      } finally {
        await this.runtime.outside(() => handle.close());
      }
    } catch (thrown) {
      throw readFailure(thrown, path, READ_ERRORS);
    } finally {
      this.readers -= 1;
    }
  }

  private requireSamePack(packDigest: string): void {
    if (packDigest === this.pack.packDigest) return;
    throw new OdmoeError(
      'NODE_REFUSED',
      `the pack asked for is ${packDigest || '(none)'}, and the one here is ${this.pack.packDigest} (${this.pack.name}): ` +
        "restart the worker, which then asks for main's pack",
    );
  }

  /** The file's name is looked up in a table before it is joined to a path. */
  private requireStretch(file: string, offsetBytes: number, lengthBytes: number): void {
    const size = this.sizes.get(file);
    if (size === undefined) {
      throw new OdmoeError('PROTOCOL_VIOLATION', `the pack has no file ${JSON.stringify(file.slice(0, 100))}`);
    }
    if (lengthBytes < 1 || offsetBytes < 0 || offsetBytes + lengthBytes > size) {
      throw new OdmoeError(
        'PROTOCOL_VIOLATION',
        `${lengthBytes} bytes from byte ${offsetBytes} of ${file} were asked for, which has ${size}`,
      );
    }
  }

  private requireHeld(file: string, offsetBytes: number, endBytes: number): void {
    const held = this.held();
    if (held === null) return;
    const missing = this.extents.find(
      (extent) =>
        extent.file === file &&
        extent.offsetBytes < endBytes &&
        extent.endBytes > offsetBytes &&
        !held.has(extent.layer, extent.expert),
    );
    if (missing === undefined) return;
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      `expert ${missing.expert} of layer ${missing.layer} has not been fetched here: ask another node for it`,
    );
  }
}

function shorter(path: string, offsetBytes: number): OdmoeError {
  return new OdmoeError('PACK_CORRUPT', `${path}: ends at byte ${offsetBytes}, before its end by the manifest`);
}
