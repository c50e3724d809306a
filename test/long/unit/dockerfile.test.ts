import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../../shared/base/files/package-root.js';

interface Instruction {
  word: string;
  rest: string;
  options: Record<string, string>;
}

interface DockerfileScript {
  stagesOf(text: string): { base: string; name: string | null; instructions: Instruction[] }[];
  ignoredPaths(text: string): string[];
  dockerfileProblems(text: string, around: { exists: (path: string) => boolean; ignored: string[] }): string[];
}

const ROOT = packageRoot();
const read = (name: string): string => readFileSync(join(ROOT, name), 'utf8');

describe('the Dockerfile', () => {
  let script: DockerfileScript;
  let text: string;
  let ignored: string[];
  const problemsOf = (changed: string): string[] =>
    script.dockerfileProblems(changed, { exists: (path) => existsSync(join(ROOT, path)), ignored });

  before(async () => {
    script = (await import(pathToFileURL(join(ROOT, 'scripts/dockerfile.mjs')).href)) as DockerfileScript;
    text = read('Dockerfile');
    ignored = script.ignoredPaths(read('.dockerignore'));
  });

  it('has stages, a user that is not root, a health check, and sources that are there', () => {
    assert.deepEqual(problemsOf(text), []);
    assert.deepEqual(
      script.stagesOf(text).map(({ name }) => name),
      ['build', null],
    );
  });

  it('is found wrong with each of these', () => {
    for (const [before, after, problem] of [
      ['USER 10001:10001', 'USER root', /USER is "root"/],
      ['USER 10001:10001\n', '', /USER is "root"/],
      ['CMD ["odmoe", "health"]', 'CMD ["odmoe", "status"]', /HEALTHCHECK/],
      ['ENTRYPOINT ["node", "/opt/odmoe/bin/odmoe"]', 'ENTRYPOINT node bin/odmoe', /ENTRYPOINT must be a list/],
      ['FROM node:20-bookworm-slim AS build', 'FROM node AS build', /FROM node: name a version/],
      ['--from=build /opt/odmoe/bin bin', '--from=builder /opt/odmoe/bin bin', /no earlier stage "builder"/],
      ['COPY package.json package-lock.json', 'COPY package.json yarn.lock', /yarn\.lock is not in the build context/],
      ['COPY package.json package-lock.json', 'COPY package.json docs/http.md', /docs\/http\.md is not in the build/],
    ] as const) {
      assert.ok(text.includes(before), before);
      const problems = problemsOf(text.replace(before, after));
      assert.equal(problems.length, 1, `${after}: ${problems.join('; ')}`);
      assert.match(problems[0] ?? '', problem);
    }
  });

  it('leaves nothing out of the build that the steps need', () => {
    const needed = [
      'bench',
      'bin',
      'cli',
      'dashboard',
      'models/demo',
      'native',
      'proto',
      'scripts',
      'shared',
      'tsconfig.json',
    ];
    for (const path of needed) assert.ok(!ignored.includes(path), path);
    const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: Record<string, string> };
    assert.ok('esbuild' in devDependencies, 'npm ci --include=dev is for esbuild');
  });

  it('has the ports of the daemons, and hands on the folders that programs read', () => {
    const last = script.stagesOf(text).at(-1)?.instructions ?? [];
    const exposed = last.filter(({ word }) => word === 'EXPOSE').map(({ rest }) => rest);
    assert.deepEqual(exposed, ['7600 7601 7602 7680']);
    const copied = last.filter(({ word }) => word === 'COPY').map(({ rest }) => rest.split(' ').at(-1));
    assert.deepEqual(copied.sort(), [
      './',
      'bench/profiles',
      'bin',
      'build/Release',
      'dist',
      'models',
      'native/gpu-files.json',
      'node_modules',
      'proto',
    ]);
  });
});
