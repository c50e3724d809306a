import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { findCachedSnapshot } from '../../packs/hub/cached-snapshot.js';
import { DOWNLOADED_AT_MS, downloadFile } from '../../packs/hub/download-file.js';
import type { HubClient } from '../../packs/hub/hub-client.js';
import { findSnapshot, type HubFile, listFilesOf } from '../../packs/hub/hub-files.js';
import type { HubSnapshot } from '../../packs/hub/hub-repository.js';
import { neededFiles } from '../../packs/hub/needed-files.js';
import { readRemoteHeader } from '../../packs/hub/remote-header.js';
import { TRIES_LIMIT } from '../../packs/hub/retry-pauses.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { readSafetensorsFile } from '../../packs/checkpoint/safetensors-file.js';
import { clientOf, HurriedRuntime, SmallHub, withSmallHub } from './small-hub.js';
import { noise, safetensorsBytes, tinyTensors, withTemporaryDirectory } from './tiny-checkpoint.js';
import { refusal } from './tiny-pack.js';

const COMMIT = '0123456789abcdef0123456789abcdef01234567';
const ID = 'owner/model';
const BYTES = noise(300_000, 7);
const OTHER = noise(BYTES.length, 8);
const SMALL = Buffer.from('{"small": true}\n');

/** One line says that a file is downloaded again. */
const AGAIN = /^owner\/model: what has come of weights.safetensors is not what the hub names; downloading it again$/;

interface Download {
  hub: SmallHub;
  client: HubClient;
  snapshot: HubSnapshot;
  file: HubFile;
  path: string;
  runtime: HurriedRuntime;
  /** Offsets of the ranges that the store was asked for; null: no range. */
  ranges: () => (string | null)[];
  /** What the user was told. */
  said: string[];
}

async function withDownload(use: (download: Download) => Promise<void>, name = 'weights.safetensors'): Promise<void> {
  await withTemporaryDirectory((directory) =>
    withSmallHub(async (hub) => {
      const files = new Map<string, Uint8Array>([
        ['weights.safetensors', BYTES],
        ['small.json', SMALL],
      ]);
      hub.repositories.set(ID, { commit: COMMIT, files, isLarge: (path) => path === 'weights.safetensors' });
      const runtime = new HurriedRuntime();
      const said: string[] = [];
      const client = clientOf(hub, { runtime, tell: (words) => said.push(words) });
      const snapshot = await findSnapshot(client, { id: ID }, 'main');
      const file = (await listFilesOf(client, snapshot)).find(({ path }) => path === name);
      assert.ok(file !== undefined);
      const ranges = (): (string | null)[] => hub.transfers.map(({ range }) => range);
      await use({ hub, client, snapshot, file, path: join(directory, name), runtime, ranges, said });
    }),
  );
}

describe('downloading a file of the hub', () => {
  it('gives its bytes, verified, with one time for all files', async () => {
    await withDownload(async ({ client, snapshot, file, path }) => {
      const seen: number[] = [];
      await downloadFile(client, snapshot, file, path, (done) => seen.push(done));
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
      assert.equal(statSync(path).mtimeMs, DOWNLOADED_AT_MS);
      assert.deepEqual(readdirSync(dirname(path)), [file.path]);
      assert.equal(seen.at(-1), BYTES.length);
    });
    await withDownload(async ({ client, snapshot, file, path }) => {
      assert.equal(file.digest.kind, 'git-blob');
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), SMALL);
    }, 'small.json');
  });

  it('continues after cuts where it was cut, with new addresses for those that have expired', async () => {
    await withDownload(async ({ hub, client, snapshot, file, path, ranges }) => {
      const firsts = (): number[] => ranges().map((range) => Number(/\d+/.exec(range ?? '0')));
      hub.faults.push({ kind: 'cut', afterBytes: 100_000 }, { kind: 'expired' }, { kind: 'cut', afterBytes: 100_000 });
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
      const [first, second = 0, third = 0, fourth = 0] = firsts();
      assert.deepEqual([first, third], [0, second]);
      // Bytes that were on their way when the connection broke may be lost.
      assert.ok(second > 0 && second <= 100_000 && fourth > third && fourth <= 200_000, `${second}, ${fourth}`);
      assert.equal(new Set(hub.transfers.map((seen) => seen.path)).size, 4, 'each address is a new one');
    });
  });

  it('continues what an earlier run has left', async () => {
    await withDownload(async ({ client, snapshot, file, path, ranges }) => {
      writeFileSync(`${path}.part`, BYTES.subarray(0, 123_456));
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
      assert.deepEqual(ranges(), ['bytes=123456-']);
    });
    await withDownload(async ({ client, snapshot, file, path, ranges }) => {
      writeFileSync(`${path}.part`, BYTES);
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(ranges(), [], 'all of it was there, and it was hashed');
      assert.ok(existsSync(path));
    });
  });

  it('begins anew where what was left is damaged or too long', async () => {
    for (const left of [OTHER.subarray(0, 5000), noise(BYTES.length + 1, 3), OTHER]) {
      await withDownload(async ({ client, snapshot, file, path, said }) => {
        writeFileSync(`${path}.part`, left);
        await downloadFile(client, snapshot, file, path);
        assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
        // What is longer than the file is no beginning of it, and nothing is lost by it.
        if (left.length <= BYTES.length) assert.match(said.join('\n'), AGAIN);
      });
    }
  });

  it('takes the whole file where a range was asked for', async () => {
    await withDownload(async ({ hub, client, snapshot, file, path, ranges }) => {
      hub.faults.push({ kind: 'cut', afterBytes: 100_000 }, { kind: 'whole' });
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
      assert.equal(ranges().length, 2);
      assert.match(ranges()[1] ?? '', /^bytes=[1-9]\d*-$/);
    });
  });

  it('finds a file that changes midway, and keeps no byte of a mixture', async () => {
    await withDownload(async ({ hub, client, snapshot, file, path, said }) => {
      hub.faults.push({ kind: 'other bytes', bytes: OTHER });
      await downloadFile(client, snapshot, file, path);
      assert.match(said.join('\n'), AGAIN);
    });
    await withDownload(async ({ hub, client, snapshot, file, path }) => {
      hub.faults.push({ kind: 'cut', afterBytes: 100_000 }, { kind: 'other bytes', bytes: OTHER });
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES), 'it came whole at the second try');
    });
    await withDownload(async ({ hub, client, snapshot, file, path }) => {
      hub.faults.push({ kind: 'other bytes', bytes: OTHER }, { kind: 'other bytes', bytes: OTHER });
      await assert.rejects(
        downloadFile(client, snapshot, file, path),
        refusal('MODEL_CORRUPT', /sends other bytes of weights.safetensors than it names/),
      );
      assert.deepEqual(readdirSync(dirname(path)), []);
    });
  });

  it('keeps what has come where the log-in of a network answers, and goes on behind it', async () => {
    const html = { kind: 'page', bytes: noise(1000, 1), type: 'text/html; charset=utf-8' } as const;
    const plain = { ...html, type: 'application/octet-stream' } as const;
    for (const page of [html, plain, { ...html, bytes: OTHER }]) {
      await withDownload(async ({ hub, client, snapshot, file, path, ranges }) => {
        writeFileSync(`${path}.part`, BYTES.subarray(0, 123_456));
        hub.faults.push(...Array.from({ length: TRIES_LIMIT }, () => page));
        await assert.rejects(
          downloadFile(client, snapshot, file, path),
          refusal('HUB_UNAVAILABLE', /instead of weights.safetensors; .*log-in of the network/),
        );
        assert.deepEqual(readFileSync(`${path}.part`), Buffer.from(BYTES.subarray(0, 123_456)));
        await downloadFile(client, snapshot, file, path);
        assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
        assert.ok(ranges().every((range) => range === 'bytes=123456-'));
      });
    }
  });

  it('names the store, and not the hub, where it cannot be reached or refuses, without its signed address', async () => {
    const refused = Array.from({ length: TRIES_LIMIT }, () => ({ kind: 'status', status: 503 }) as const);
    for (const [faults, away, what] of [
      [[], 'http://127.0.0.1:9', 'cannot be reached'],
      [refused, null, 'refuses weights.safetensors: status 503;'],
    ] as const) {
      await withDownload(async ({ hub, client, snapshot, file, path }) => {
        hub.storeAddress = away ?? hub.storeAddress;
        hub.faults.push(...faults);
        const place = `${hub.storeAddress}, to which ${hub.endpoint} sends, ${what}`;
        await assert.rejects(downloadFile(client, snapshot, file, path), (thrown) => {
          const { message } = toOdmoeError(thrown);
          assert.ok(message.includes(place), message);
          return refusal('HUB_UNAVAILABLE', /^(?!.*signature)/)(thrown);
        });
      });
    }
  });

  it('knows what is no file of a model by its type and its length, in whatever is read first', async () => {
    const html = Buffer.from('<!DOCTYPE html><title>Log in</title>'.repeat(1000));
    const page = { kind: 'page', bytes: html, type: 'text/html', isChunked: true } as const;
    const short = { kind: 'page', bytes: html, type: 'application/octet-stream' } as const;
    for (const [fault, what] of [
      [page, 'a web page'],
      [short, `${html.length} bytes`],
    ] as const) {
      const words = new RegExp(`answers with ${what} instead of weights.safetensors; .*log-in of the network`);
      await withDownload(async ({ hub, client, snapshot, file, path }) => {
        for (const read of [
          () => readRemoteHeader(client, snapshot, file, dirname(path)),
          () => downloadFile(client, snapshot, file, path),
        ]) {
          hub.faults.push(...Array.from({ length: TRIES_LIMIT }, () => fault));
          await assert.rejects(read(), refusal('HUB_UNAVAILABLE', words));
          assert.equal(hub.faults.length, 0);
        }
        hub.faults.push(fault);
        await downloadFile(client, snapshot, file, path);
        assert.deepEqual(readFileSync(path), Buffer.from(BYTES), 'it came behind the log-in');
      });
    }
  });

  it('takes no range that begins elsewhere', async () => {
    await withDownload(async ({ hub, client, snapshot, file, path }) => {
      hub.faults.push({ kind: 'cut', afterBytes: 100_000 }, { kind: 'shifted' });
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
    });
  });

  it('obeys 429, gives up after failures in a row, and keeps what has come', async () => {
    await withDownload(async ({ hub, client, snapshot, file, path, runtime }) => {
      hub.faults.push({ kind: 'status', status: 429, headers: { 'retry-after': '9' } });
      hub.faults.push({ kind: 'cut', afterBytes: 50_000 });
      hub.faults.push(...Array.from({ length: TRIES_LIMIT }, () => ({ kind: 'status', status: 500 }) as const));
      await assert.rejects(downloadFile(client, snapshot, file, path), (thrown) => {
        assert.ok(!toOdmoeError(thrown).message.includes('signature'), 'an address in the store is a secret');
        return refusal('HUB_UNAVAILABLE', /status 500; run the same command later/)(thrown);
      });
      assert.equal(runtime.pausesMs[0], 9000);
      assert.ok(statSync(`${path}.part`).size > 0);
    });
  });

  it('does not give up while each try brings something', async () => {
    await withDownload(async ({ hub, client, snapshot, file, path }) => {
      for (let cut = 0; cut < 3 * TRIES_LIMIT; cut += 1) hub.faults.push({ kind: 'cut', afterBytes: 10_000 });
      await downloadFile(client, snapshot, file, path);
      assert.deepEqual(readFileSync(path), Buffer.from(BYTES));
    });
  });

  it('says where a file cannot be written', async () => {
    await withDownload(async ({ client, snapshot, file, path }) => {
      await assert.rejects(
        downloadFile(client, snapshot, file, join(path, 'not-there', 'file')),
        refusal('STORAGE_FAILED', /cannot be written/),
      );
    });
  });
});

describe('the header of a file on the hub', () => {
  it('is that of the file when it is here, and only its first bytes are taken', async () => {
    await withTemporaryDirectory((directory) =>
      withSmallHub(async (hub) => {
        const bytes = safetensorsBytes([
          ...tinyTensors(),
          { name: 'large', dtype: 'U8', shape: [8_000_000], data: noise(8_000_000, 1) },
        ]);
        hub.repositories.set(ID, { commit: COMMIT, files: new Map([['model.safetensors', bytes]]) });
        const client = clientOf(hub);
        const snapshot = { id: ID, commit: COMMIT };
        const [file] = await listFilesOf(client, snapshot);
        assert.ok(file !== undefined);
        const remote = await readRemoteHeader(client, snapshot, file, directory);
        await downloadFile(client, snapshot, file, join(directory, file.path));
        assert.deepEqual(remote, await readSafetensorsFile(join(directory, file.path)));
      }),
    );
  });

  it('is refused where the file is none', async () => {
    await withDownload(async ({ client, snapshot, file, path }) => {
      await assert.rejects(
        readRemoteHeader(client, snapshot, file, path),
        refusal('MODEL_CORRUPT', /owner\/model: weights.safetensors: header of/),
      );
    });
  });
});

describe('files that a pack needs of the hub', () => {
  const named = (...names: string[]): HubFile[] =>
    names.map((path) => ({ path, sizeBytes: 10, digest: { kind: 'git-blob', hex: COMMIT } }));

  it('are those at the top that a pack is made from', () => {
    const files = named(
      'README.md',
      'config.json',
      'tokenizer.json',
      'model.safetensors.index.json',
      'a.safetensors',
      'old/b.safetensors',
    );
    const { small, weights } = neededFiles(ID, files);
    assert.deepEqual(
      small.map(({ path }) => path),
      ['config.json', 'tokenizer.json', 'model.safetensors.index.json'],
    );
    assert.deepEqual([...weights.keys()], ['a.safetensors']);
  });

  it('are refused where there is no model that could be packed', () => {
    const cases: [string[], Parameters<typeof refusal>][] = [
      [
        ['README.md', 'model-Q4_K_M.gguf'],
        ['USAGE', /weights are GGUF files, model-Q4_K_M\.gguf \(.*name one of them/],
      ],
      [
        ['config.json', 'pytorch_model.bin'],
        ['MODEL_UNSUPPORTED', /PyTorch/],
      ],
      [['config.json'], ['MODEL_NOT_FOUND', /neither model.safetensors nor/]],
      [['model.safetensors'], ['MODEL_NOT_FOUND', /no config.json/]],
    ];
    for (const [names, expected] of cases) assert.throws(() => neededFiles(ID, named(...names)), refusal(...expected));
  });
});

describe("a checkpoint in the cache of the hub's own library", () => {
  const snapshotOf = (cache: string): string => join(cache, 'models--owner--model', 'snapshots', COMMIT);

  function writeCache(cache: string, names: readonly string[]): void {
    const repository = dirname(dirname(snapshotOf(cache)));
    for (const directory of ['blobs', 'refs', `snapshots/${COMMIT}`])
      mkdirSync(join(repository, directory), { recursive: true });
    writeFileSync(join(repository, 'refs', 'main'), COMMIT);
    for (const name of names) {
      const isIndex = name.endsWith('.index.json');
      const shards = { weight_map: { a: 'model-1.safetensors', b: 'model-2.safetensors' } };
      writeFileSync(join(repository, 'blobs', name), isIndex ? JSON.stringify(shards) : 'content');
      symlinkSync(join('..', '..', 'blobs', name), join(snapshotOf(cache), name));
    }
  }

  const INDEX = 'model.safetensors.index.json';

  it('is found if all files of its index are there', async () => {
    await withTemporaryDirectory(async (cache) => {
      writeCache(cache, ['config.json', INDEX, 'model-1.safetensors', 'model-2.safetensors']);
      const expected = { directory: snapshotOf(cache), commit: COMMIT };
      assert.deepEqual(await findCachedSnapshot(cache, { id: ID }, 'main'), expected);
      assert.deepEqual(await findCachedSnapshot(cache, { id: ID }, COMMIT), expected);
      assert.equal(await findCachedSnapshot(cache, { id: ID }, 'other'), null);
      assert.equal(await findCachedSnapshot(cache, { id: ID }, '../refs/main'), null);
      assert.equal(await findCachedSnapshot(cache, { id: 'owner/another' }, 'main'), null);
    });
    await withTemporaryDirectory(async (cache) => {
      writeCache(cache, ['config.json', 'model.safetensors']);
      assert.notEqual(await findCachedSnapshot(cache, { id: ID }, 'main'), null);
    });
  });

  it('is not found if something of it is missing', async () => {
    const cases = [
      ['config.json'],
      ['config.json', INDEX],
      ['config.json', INDEX, 'model-1.safetensors'],
      ['model.safetensors'],
    ];
    for (const names of cases) {
      await withTemporaryDirectory(async (cache) => {
        writeCache(cache, names);
        // The link of a file that is being downloaded leads nowhere yet.
        symlinkSync('../../blobs/none', join(snapshotOf(cache), 'model-2.safetensors'));
        assert.equal(await findCachedSnapshot(cache, { id: ID }, 'main'), null, names.join());
      });
    }
  });
});
