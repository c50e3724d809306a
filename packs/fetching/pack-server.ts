import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure, type FileErrors } from '../../shared/base/files/read-file.js';
import { expertExtents, type ExpertExtent } from '../format/extents.js';
import { HeldExperts } from '../format/held-experts.js';
import type { Pack } from '../format/open-pack.js';
import { FETCH_MANIFEST_FILE, MANIFEST_FILE, SLICE_FILE_PATTERN } from '../format/pack-layout.js';
import { PACK_PIECE_BYTES, PACK_READERS_LIMIT, PACK_READERS_OF_PEER_LIMIT } from '../../shared/wire/limits.js';
import { countedName, type PeerContext } from '../../shared/transport/peer-context.js';
import type { PackDescription, PackPiece, ReadManifestRequest, ReadPackRequest } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { missingExpert, type ServedSlices, SlicesTable } from './served-slices.js';

const READ_ERRORS: FileErrors = {
  missing: 'PACK_INCOMPLETE',
  invalid: 'PACK_CORRUPT',
  remedy: 'ask another node for it',
};

/** The parts of its pack that a daemon has, if that is not the whole pack without slices. */
export interface ServedParts {
  /** The lossless experts on the disk of a pack that is being fetched; null: the pack is whole. Left out: it always is. */
  held?: () => HeldExperts | null;
  /** Null, or left out: there are none. */
  slices?: ServedSlices | null;
}

/** Serves pack pieces of the daemon's pack to peers, straight from its files and at the reader's pace. */
export class PackServer {
  private readonly pack: Pack;
  private readonly runtime: Runtime;
  private readonly held: () => HeldExperts | null;
  private readonly all: HeldExperts;
  private readonly sizes: ReadonlyMap<string, number>;
  private readonly extents: readonly ExpertExtent[];
  private readonly slices: SlicesTable | null;
  private readers = 0;
  private readonly readersOfPeer = new Map<string, number>();

  constructor(pack: Pack, runtime: Runtime, { held = () => null, slices = null }: ServedParts = {}) {
    this.pack = pack;
    this.runtime = runtime;
    this.held = held;
    this.slices = slices && new SlicesTable(slices);
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
      ...(this.slices === null ? {} : { slices: this.slices.describe() }),
    };
  }

  /** Sends the manifest, or slices.json, to the end of its file; the reader checks it by its digest. @throws NODE_REFUSED, QUEUE_FULL, STORAGE_FAILED */
  async *manifest(
    { packDigest, slicesDigest = '' }: ReadManifestRequest,
    signal: AbortSignal,
    peer: PeerContext,
  ): AsyncGenerator<PackPiece, void, undefined> {
    this.requireSamePack(packDigest);
    const { directory } = this.pack;
    if (slicesDigest === '') {
      const name = this.held() === null ? MANIFEST_FILE : FETCH_MANIFEST_FILE;
      yield* this.packPieces(join(directory, name), 0, null, signal, peer);
    } else {
      const { served } = this.sameSlices(slicesDigest);
      yield* this.packPieces(join(served.directory, served.manifestFile), 0, null, signal, peer);
    }
  }

  /** @throws NODE_REFUSED, PROTOCOL_VIOLATION (no such bytes in the pack), PACK_INCOMPLETE (not on this disk), QUEUE_FULL, STORAGE_FAILED */
  async *read(
    request: ReadPackRequest,
    signal: AbortSignal,
    peer: PeerContext,
  ): AsyncGenerator<PackPiece, void, undefined> {
    const { packDigest, file, offsetBytes, lengthBytes, slicesDigest = '' } = request;
    this.requireSamePack(packDigest);
    const slices = SLICE_FILE_PATTERN.test(file) ? this.sameSlices(slicesDigest) : null;
    requireStretch(request, slices?.sizes ?? this.sizes);
    const missing = this.missing(slices, request);
    if (missing !== undefined) throw notHere(missing, slices);
    const directory = slices?.served.directory ?? this.pack.directory;
    yield* this.packPieces(join(directory, file), offsetBytes, lengthBytes, signal, peer);
  }

  /** `lengthBytes` null: to the file's end. The bytes of a pack piece are valid until the next one is requested. */
  private async *packPieces(
    path: string,
    startBytes: number,
    lengthBytes: number | null,
    signal: AbortSignal,
    peer: PeerContext,
  ): AsyncGenerator<PackPiece, void, undefined> {
    const name = countedName(peer);
    this.countReader(name);
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
      this.forgetReader(name);
    }
  }

  /** @throws QUEUE_FULL when too many read, or too many of this peer */
  private countReader(name: string): void {
    const ofPeer = this.readersOfPeer.get(name) ?? 0;
    if (this.readers >= PACK_READERS_LIMIT || ofPeer >= PACK_READERS_OF_PEER_LIMIT) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `${this.readers} readers of the pack are served here already, ${ofPeer} of them of ${name}: ask again, or another node`,
      );
    }
    this.readers += 1;
    this.readersOfPeer.set(name, ofPeer + 1);
  }

  private forgetReader(name: string): void {
    this.readers -= 1;
    const ofPeer = (this.readersOfPeer.get(name) ?? 0) - 1;
    if (ofPeer > 0) this.readersOfPeer.set(name, ofPeer);
    else this.readersOfPeer.delete(name);
  }

  private requireSamePack(packDigest: string): void {
    if (packDigest === this.pack.packDigest) return;
    throw new OdmoeError(
      'NODE_REFUSED',
      `the pack asked for is ${packDigest || '(none)'}, and the one here is ${this.pack.packDigest} (${this.pack.name}): ` +
        "restart the worker, which then asks for main's pack",
    );
  }

  /** @throws NODE_REFUSED if the slices asked for are not here */
  private sameSlices(slicesDigest: string): SlicesTable {
    if (this.slices?.served.digest === slicesDigest) return this.slices;
    const here = this.slices === null ? 'no slices are here' : `those here are ${this.slices.served.digest}`;
    throw new OdmoeError(
      'NODE_REFUSED',
      `the slices asked for are ${slicesDigest || '(none)'}, and ${here}: restart the worker, which then asks for main's slices`,
    );
  }

  private missing(
    slices: SlicesTable | null,
    { file, offsetBytes, lengthBytes }: ReadPackRequest,
  ): ExpertExtent | undefined {
    const endBytes = offsetBytes + lengthBytes;
    if (slices !== null) return slices.missing(file, offsetBytes, endBytes);
    const held = this.held();
    return held === null ? undefined : missingExpert(this.extents, held, { file, offsetBytes, endBytes });
  }
}

/** The file's name is looked up in a table before it is joined to a path. */
function requireStretch({ file, offsetBytes, lengthBytes }: ReadPackRequest, sizes: ReadonlyMap<string, number>): void {
  const size = sizes.get(file);
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

function notHere({ layer, expert, file }: ExpertExtent, slices: SlicesTable | null): OdmoeError {
  const what = slices === null ? 'expert' : `the ${file.includes('.lower.') ? 'lower' : 'upper'} slice of expert`;
  return new OdmoeError(
    'PACK_INCOMPLETE',
    `${what} ${expert} of layer ${layer} has not been fetched here: ask another node for it`,
  );
}

function shorter(path: string, offsetBytes: number): OdmoeError {
  return new OdmoeError('PACK_CORRUPT', `${path}: ends at byte ${offsetBytes}, before its end by the manifest`);
}
