import assert from 'node:assert/strict';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { openPack } from '../../packs/format/open-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { refuseWrongDownload } from '../../shared/base/files/wrong-download.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { pack, refusal, withCheckpoint } from './tiny-pack.js';

const POINTER = 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n';
const PAGE = '<!doctype html>\n<html class="">\n<head><title>config.json\n · Some/Model at main</title></head></html>';
const SIGN_IN_PAGE = '<html><head><title>Sign in to continue</title></head><body></body></html>';

const WRONG: readonly { name: string; content: string; words: RegExp }[] = [
  { name: 'a pointer of Git LFS', content: POINTER, words: /a pointer of Git LFS stands .*`git lfs pull`/ },
  {
    name: 'an HTML page',
    content: PAGE,
    words: /an HTML page \("config\.json · Some\/Model at main"\) stands .*`hf download`.*\/resolve\//,
  },
  {
    name: 'a page to sign in',
    content: SIGN_IN_PAGE,
    words: /an HTML page \("Sign in to continue"\).*`hf auth login`/,
  },
];

function examine(content: string | Uint8Array): void {
  refuseWrongDownload(typeof content === 'string' ? Buffer.from(content) : content, 'DIR/x.json', 'MODEL_CORRUPT');
}

describe('wrong downloads', () => {
  it('names what stands in place of a file, and what to do', () => {
    for (const { content, words } of WRONG) assert.throws(() => examine(content), refusal('MODEL_CORRUPT', words));
    const others: [string, RegExp][] = [
      [`\uFEFF  <?xml version="1.0"?>\n<!-- a -->\n${PAGE}`, /an HTML page/],
      ['<HTML lang="en"></HTML>', /: an HTML page stands/],
      [`<html><body><form action="https://huggingface.co/login"></form></body></html>`, /`hf auth login`/],
      [
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access denied.</Message></Error>',
        /an error of the web server \("Access denied\."\).*`hf auth login`/,
      ],
      ['{"error":"Invalid username or password."}', /an error of the web server \("Invalid username.*`hf auth login`/],
      [
        'Access to model a/b is restricted. You must be authenticated to access it.',
        /an error of the web server \("Access to model a\/b is restricted\..*`hf auth login`/,
      ],
      ['Entry not found', /an error of the web server \("Entry not found"\).*`hf download`/],
      [`${'<!-- '}${'<title>'.repeat(9)} --><html><title>${'long '.repeat(100)}</title></html>`, /"\) stands/],
    ];
    for (const [content, words] of others) assert.throws(() => examine(content), refusal('MODEL_CORRUPT', words));
  });

  it('takes no file of a model for one', async () => {
    const models = join(packageRoot(), 'models', 'demo');
    for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors']) {
      examine(await readFile(join(models, name)));
    }
    for (const text of ['', '{% if x %}<html>{% endif %}', '<|im_start|>', '{"errors": 1}', '<!-- an open comment']) {
      examine(text);
    }
  });

  for (const { name, content, words } of WRONG) {
    it(`${name} is named in place of every file of a checkpoint`, async () => {
      const files = [
        'config.json',
        'generation_config.json',
        'model.safetensors.index.json',
        'model-00001-of-00002.safetensors',
      ];
      await withTemporaryDirectory(async (directory) => {
        await writeTinyCheckpoint(directory, undefined, { shards: 2 });
        for (const file of files) {
          const before = await readFile(join(directory, file)).catch(() => null);
          await writeFile(join(directory, file), content);
          await assert.rejects(
            openModelSource(directory),
            refusal('MODEL_CORRUPT', new RegExp(`${file}: ${words.source}`)),
          );
          await writeFile(join(directory, file), before ?? '{}');
        }
        await openModelSource(directory);
      });
    });

    it(`${name} is named in place of every file of a tokenizer`, async () => {
      await withTemporaryDirectory(async (directory) => {
        const models = join(packageRoot(), 'models', 'demo');
        for (const file of ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja']) {
          for (const good of ['tokenizer.json', 'tokenizer_config.json']) {
            await cp(join(models, good), join(directory, good));
          }
          await writeFile(join(directory, file), content);
          await assert.rejects(
            loadTokenizer(directory),
            refusal('TOKENIZER_INVALID', new RegExp(`${file.replace('.', '\\.')}: ${words.source}`)),
          );
        }
      });
    });

    it(`${name} is named in place of every file of a pack`, async () => {
      await withCheckpoint(async (checkpoint, output) => {
        await writeFile(join(checkpoint, 'chat_template.jinja'), '{{ messages }}');
        await pack(checkpoint, output);
        for (const file of ['manifest.json', 'dense.safetensors', 'experts-00001.bin', 'chat_template.jinja']) {
          const before = await readFile(join(output, file));
          await writeFile(join(output, file), content);
          await assert.rejects(openPack(output), refusal('PACK_CORRUPT', new RegExp(`${file}: ${words.source}`)));
          await writeFile(join(output, file), before);
        }
        await openPack(output);
      });
    });

    it(`${name} is named where a whole pack is compared with its checkpoint`, async () => {
      await withCheckpoint(async (checkpoint, output) => {
        await writeFile(join(checkpoint, 'chat_template.jinja'), '{{ messages }}');
        await pack(checkpoint, output);
        await writeFile(join(checkpoint, 'chat_template.jinja'), content);
        await assert.rejects(pack(checkpoint, output), refusal('MODEL_CORRUPT', words));
      });
    });
  }
});
