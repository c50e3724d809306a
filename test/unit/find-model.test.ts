import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findModel, type FindOptions, type FoundModel } from '../../cli/models/find-model.js';
import { tinyTensors, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { refusal } from './tiny-pack.js';

const ID = 'owner/model';
const COMMIT = '0123456789abcdef0123456789abcdef01234567';
const OTHER = 'ba9876543210ba9876543210ba9876543210ba98';

interface Place {
  packs: string;
  cache: string;
  said: string[];
  find: (revision: string) => Promise<FoundModel>;
}

/** A directory of packs, of which only the names and the ends count here, and a cache of the hub's own library. */
async function withPlace(variables: Record<string, string>, use: (place: Place) => Promise<void>): Promise<void> {
  await withTemporaryDirectory(async (home) => {
    const [packs, cache] = [join(home, 'packs'), join(home, 'cache')];
    for (const directory of [packs, cache]) mkdirSync(directory);
    const said: string[] = [];
    const given: Record<string, string> = { HF_HUB_CACHE: cache, ...variables };
    const before = Object.keys(given).map((name) => [name, process.env[name]] as const);
    Object.assign(process.env, given);
    try {
      const { signal } = new AbortController();
      const options: Omit<FindOptions, 'revision'> = { packs, signal, tell: (words) => said.push(words) };
      await use({ packs, cache, said, find: (revision) => findModel({ id: ID }, { ...options, revision }) });
    } finally {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  });
}

function writePack(packs: string, commit: string): string {
  const directory = join(packs, `owner--model--${commit.slice(0, 12)}`);
  mkdirSync(directory);
  writeFileSync(join(directory, 'manifest.json'), '{}');
  return directory;
}

function writeReference(cache: string, name: string, commit: string): void {
  const refs = join(cache, 'models--owner--model', 'refs');
  mkdirSync(refs, { recursive: true });
  writeFileSync(join(refs, name), commit);
}

describe('a model, without the hub,', () => {
  const offline = { HF_HUB_OFFLINE: '1' };

  it('is the pack of the commit that the revision names, and no other', async () => {
    await withPlace(offline, async ({ packs, cache, said, find }) => {
      const directory = writePack(packs, COMMIT);
      assert.deepEqual(await find(COMMIT), { kind: 'packed', directory });
      const unknown = refusal('HUB_UNAVAILABLE', /owner\/model of revision ".*".* is known to be it/);
      for (const revision of [OTHER, 'v2']) await assert.rejects(find(revision), unknown);
      writeReference(cache, 'v2', COMMIT);
      assert.deepEqual(await find('v2'), { kind: 'packed', directory });
      assert.deepEqual(said, []);
    });
  });

  it('is the newest pack for the default branch, which is told', async () => {
    await withPlace(offline, async ({ packs, said, find }) => {
      const directory = writePack(packs, COMMIT);
      assert.deepEqual(await find('main'), { kind: 'packed', directory });
      assert.equal(said.length, 1);
      assert.match(said[0] ?? '', /not known without the hub; takes the pack that was made last, .*0123456789ab$/);
    });
  });

  it('is no checkpoint of the cache that lacks its tokenizer', async () => {
    await withPlace(offline, async ({ packs, cache, find }) => {
      writeReference(cache, 'main', COMMIT);
      const snapshot = join(cache, 'models--owner--model', 'snapshots', COMMIT);
      mkdirSync(snapshot, { recursive: true });
      await writeTinyCheckpoint(snapshot, tinyTensors());
      rmSync(join(snapshot, 'tokenizer.json'), { force: true });
      const words = /without tokenizer.json: complete it \(hf download owner\/model --revision 0123.*odmoe pack/;
      await assert.rejects(find('main'), refusal('TOKENIZER_INVALID', words));
      assert.deepEqual(readdirSync(packs), []);
    });
  });
});

describe('a model whose hub cannot be reached', () => {
  // Nothing listens at the port of "discard".
  const unreachable = { HF_ENDPOINT: 'http://127.0.0.1:9', HF_HUB_OFFLINE: '0' };

  it('is the pack that is here, after one try, and that is told', async () => {
    await withPlace(unreachable, async ({ packs, said, find }) => {
      const directory = writePack(packs, COMMIT);
      for (const revision of ['main', COMMIT]) {
        assert.deepEqual(await find(revision), { kind: 'packed', directory });
        assert.equal(said.length, 1, said.join('\n'));
        assert.match(said.pop() ?? '', /127.0.0.1:9 cannot be reached.*; takes the pack that is here, .*0123456789ab$/);
      }
    });
  });
});
