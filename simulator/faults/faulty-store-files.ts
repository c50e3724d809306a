import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type OpenStoreFiles, openStoreFiles, type StoreFiles } from '../../engine/environment/store-files.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

/** Longest time of an operation: a kill may come between a write and the new name. */
const LONGEST_MS = 20;
/** Shares of writes. */
const FULL_SHARE = 0.05;
const CUT_SHARE = 0.05;
const FLIPPED_SHARE = 0.05;

/** The files of main's store on a disk that takes time, is full at times, and loses or changes bits of what was written. */
export function faultyStoreFiles(random: SeededRandom, sleep: (ms: number) => Promise<void>): OpenStoreFiles {
  return async (directory, runtime) => {
    const files = await openStoreFiles(directory, runtime);
    return files && new FaultyFiles(files, directory, random, sleep);
  };
}

class FaultyFiles implements StoreFiles {
  constructor(
    private readonly files: StoreFiles,
    private readonly directory: string,
    private readonly random: SeededRandom,
    private readonly sleep: (ms: number) => Promise<void>,
  ) {}

  list(): ReturnType<StoreFiles['list']> {
    return this.files.list();
  }

  async read(name: string): Promise<Uint8Array | null> {
    await this.wait();
    return this.files.read(name);
  }

  readStart(name: string, bytes: number): Promise<Uint8Array | null> {
    return this.files.readStart(name, bytes);
  }

  async write(name: string, bytes: Uint8Array): Promise<void> {
    await this.wait();
    if (this.random.chance(FULL_SHARE)) throw new OdmoeError('STORAGE_FULL', 'the disk is full (simulated)');
    await this.files.write(name, bytes);
  }

  async publish(name: string): Promise<void> {
    await this.wait();
    await this.files.publish(name);
    const path = join(this.directory, name);
    if (this.random.chance(CUT_SHARE)) truncateSync(path, this.random.int(readFileSync(path).length));
    else if (this.random.chance(FLIPPED_SHARE)) flipBit(path, this.random);
  }

  replace(name: string, text: string): Promise<void> {
    return this.files.replace(name, text);
  }

  async remove(names: readonly string[]): Promise<void> {
    await this.wait();
    await this.files.remove(names);
  }

  touch(names: readonly string[], usedMs: number): Promise<void> {
    return this.files.touch(names, usedMs);
  }

  close(): Promise<void> {
    return this.files.close();
  }

  private wait(): Promise<void> {
    return this.sleep(this.random.int(LONGEST_MS));
  }
}

function flipBit(path: string, random: SeededRandom): void {
  const bytes = readFileSync(path);
  const place = random.int(bytes.length);
  bytes[place] = (bytes[place] ?? 0) ^ (1 << random.int(8));
  writeFileSync(path, bytes);
}
