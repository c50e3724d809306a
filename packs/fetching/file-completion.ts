import { createHash } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ManifestFile } from '../format/manifest.js';
import { PARTIAL_SUFFIX } from '../format/pack-layout.js';
import type { PackSource } from '../../shared/transport/node-clients.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { DamagedBytesError } from './download-expert.js';
import { fromPeer, PeerFailure } from './peer-failure.js';
import type { PackPeers } from './pack-peers.js';
import type { CompletedPack } from './fetch-store.js';
import { openCounted } from '../../shared/base/files/counted-file.js';

/** Pause after a failure, and after damage, which is often followed by more. No load waits for these files. */
export const COMPLETION_PAUSE_MS = 10_000;

/** Once every expert is on the disk, fetches the other files and makes the directory an ordinary pack. */
export class FileCompletion {
  private dueMs = 0;

  constructor(
    private readonly partial: CompletedPack,
    private readonly peers: PackPeers,
    private readonly log: Logger,
    private readonly requireRoom: (directory: string, bytes: number) => Promise<void>,
    private readonly runtime: Runtime,
  ) {}

  /** True if every expert is on the disk, but the pack is not whole. */
  get isPending(): boolean {
    return this.partial.held.isComplete && !this.partial.isWhole;
  }

  isDue(nowMs: number): boolean {
    return this.isPending && nowMs >= this.dueMs;
  }

  /** Delays the completion, because a part of the pack is damaged. */
  postpone(nowMs: number): void {
    this.dueMs = nowMs + COMPLETION_PAUSE_MS;
  }

  /** Returns true if the pack is whole now. Never rejects: a failed attempt is repeated later. */
  async run(signal: AbortSignal, nowMs: number): Promise<boolean> {
    this.dueMs = nowMs + COMPLETION_PAUSE_MS;
    try {
      for (const file of await this.partial.missingFiles()) await this.fetch(file, signal);
      if (signal.aborted) return false;
      await this.partial.promote();
      await this.cleanUp();
      this.log.info('the pack is whole', { directory: this.partial.pack.directory });
      return true;
    } catch (thrown) {
      if (!signal.aborted) this.log.info('the pack cannot be completed yet', { error: toOdmoeError(thrown) });
      return false;
    }
  }

  /** The pack is whole even if files of the fetch remain. */
  private async cleanUp(): Promise<void> {
    try {
      await this.partial.cleanUp();
    } catch (thrown) {
      const { directory } = this.partial.pack;
      this.log.warn('what the fetch left cannot be removed', { directory, error: toOdmoeError(thrown) });
    }
  }

  private async fetch(file: ManifestFile, signal: AbortSignal): Promise<void> {
    const peer = this.peers.chooseWhole();
    const source = peer?.source ?? null;
    if (peer === null || source === null)
      throw new OdmoeError('PACK_INCOMPLETE', 'no peer that has the whole pack answers at present');
    peer.streams += 1;
    try {
      await this.receive(source, file, signal);
    } catch (thrown) {
      if (thrown instanceof PeerFailure && !signal.aborted) this.peers.failed(peer, thrown);
      throw thrown;
    } finally {
      peer.streams -= 1;
    }
  }

  private async receive(source: PackSource, file: ManifestFile, signal: AbortSignal): Promise<void> {
    const { directory } = this.partial.pack;
    const path = join(directory, file.name);
    await this.runtime.outside(() => this.requireRoom(directory, file.size_bytes));
    try {
      await this.write(source, file, path + PARTIAL_SUFFIX, signal);
      await this.runtime.outside(() => rename(path + PARTIAL_SUFFIX, path));
    } catch (thrown) {
      await this.runtime.outside(() => rm(path + PARTIAL_SUFFIX, { force: true }));
      throw writeFailure(thrown, path, file.size_bytes);
    }
  }

  /** Never writes more bytes than the manifest gives, whatever the peer sends. */
  private async write(source: PackSource, file: ManifestFile, path: string, signal: AbortSignal): Promise<void> {
    const { name, size_bytes, sha256 } = file;
    const request = { packDigest: this.partial.pack.packDigest, file: name, offsetBytes: 0, lengthBytes: size_bytes };
    const hash = createHash('sha256');
    const handle = await this.runtime.outside(() => openCounted(path, 'w'));
    let received = 0;
    try {
      // An empty file has no bytes to request.
      for await (const piece of size_bytes === 0 ? [] : fromPeer(source.read(request, signal))) {
        received += piece.length;
        if (received > size_bytes) {
          throw new PeerFailure('PROTOCOL_VIOLATION', `${name} came with more bytes than were asked for`);
        }
        hash.update(piece);
        await this.runtime.outside(() => handle.writeFile(piece));
      }
      await this.runtime.outside(() => handle.sync());
    } finally {
      await this.runtime.outside(() => handle.close());
    }
    if (received !== size_bytes || hash.digest('hex') !== sha256) {
      throw new DamagedBytesError('PACK_CORRUPT', `${name} came with other bytes than the manifest names`);
    }
  }
}
