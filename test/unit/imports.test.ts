import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const packageRoot = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

/** docs/architecture.md, "Modules, and which way imports run". */
const MAY_IMPORT: Record<string, readonly string[]> = {
  shared: ['shared'],
  native: ['native', 'shared'],
  packs: ['packs', 'native', 'shared'],
  engine: ['engine', 'packs', 'native', 'shared'],
  'http-api': ['http-api', 'engine', 'shared'],
  'main-node': ['main-node', 'http-api', 'engine', 'packs', 'native', 'shared'],
  'shadow-node': ['shadow-node', 'engine', 'packs', 'native', 'shared'],
  'worker-node': ['worker-node', 'engine', 'packs', 'native', 'shared'],
  simulator: ['simulator', 'main-node', 'shadow-node', 'worker-node', 'engine', 'packs', 'native', 'shared'],
  cli: ['cli', 'simulator', 'engine', 'packs', 'native', 'shared'],
  dashboard: ['dashboard', 'shared'],
  bench: [
    'bench',
    'cli',
    'simulator',
    'http-api',
    'main-node',
    'shadow-node',
    'worker-node',
    'engine',
    'packs',
    'native',
    'shared',
  ],
};
/** Modules of shared, and the modules of shared that each may import beside itself. */
const SHARED_MAY_IMPORT: Record<string, readonly string[]> = {
  base: [],
  model: ['base'],
  settings: ['model', 'base'],
  wire: ['base'],
  transport: ['wire', 'settings', 'base'],
  decisions: ['model', 'wire', 'settings', 'base'],
  language: ['wire', 'base'],
};
/** Lines of shared that at most one module outside of it reaches: such code belongs to that module. */
const LINES_OF_ONE_ROOM_LIMIT = 300;
/** The native door may import the shared model types and the errors, and nothing else of shared. */
const NATIVE_MAY_IMPORT_OF_SHARED = ['shared/model', 'shared/base/errors'];
/** The page may import main's events, the file of a conversation, the ranges of sampling, the writing of an SVG and of a size, and nothing else of shared. */
const DASHBOARD_MAY_IMPORT_OF_SHARED = [
  'shared/wire/cluster-events.js',
  'shared/wire/cluster-machines.js',
  'shared/wire/page-link.js',
  'shared/wire/sampling-options.js',
  'shared/wire/saved-conversation.js',
  'shared/base/text/natural-order.js',
  'shared/base/text/svg-drawing.js',
  'shared/base/text/units.js',
];
/** Daemons reach emulated devices through engine/devices and engine/environment, which choose them. */
const DAEMONS = ['main-node', 'shadow-node', 'worker-node'];
/** A source in TypeScript. */
const SOURCE = /\.tsx?$/;
const BANNED_NAMES = /(^|[/.-])(utils?|helpers?|common|misc|managers?)([/.-]|$)/;

function filesBelow(folder: string, pattern: RegExp): string[] {
  return readdirSync(join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => pattern.test(path) && !path.includes('node_modules'))
    .map((path) => join(folder, path));
}

/** Imports by file. Many tests ask for those of the same file. */
const imports = new Map<string, readonly string[]>();

function importsOf(path: string): readonly string[] {
  const known = imports.get(path);
  if (known !== undefined) return known;
  const text = readFileSync(join(packageRoot, path), 'utf8');
  const found = text.matchAll(/(?:from\s+|import\s*\(\s*|import\s+)['"](\.{1,2}\/[^'"]+)['"]/g);
  const targets = [...found].map((match) => relative(packageRoot, resolve(packageRoot, dirname(path), match[1] ?? '')));
  imports.set(path, targets);
  return targets;
}

/** The path of the source that an import of `path` (app.js) names: app.ts or app.tsx. */
function withSourceEnding(path: string): string {
  const source = path.replace(/\.js$/, '.ts');
  return existsSync(join(packageRoot, source)) ? source : `${source}x`;
}

function includesOf(path: string): string[] {
  const text = readFileSync(join(packageRoot, path), 'utf8');
  return [...text.matchAll(/^\s*#\s*include\s+["<]([^">]+)[">]/gm)].map((match) => match[1] ?? '');
}

describe('the import rules:', () => {
  for (const [module, allowed] of Object.entries(MAY_IMPORT)) {
    it(`the module ${module} imports only from ${allowed.join(', ')}`, () => {
      const files = filesBelow(module, SOURCE);
      assert.ok(files.length > 0, `no TypeScript file found in ${module}`);
      const wrong = files.flatMap((file) =>
        importsOf(file)
          .filter((target) => !allowed.includes(target.split('/')[0] ?? ''))
          .map((target) => `${file} -> ${target}`),
      );
      assert.deepEqual(wrong, []);
    });
  }

  it('each folder of shared imports only the folders below it', () => {
    const folders = readdirSync(join(packageRoot, 'shared')).sort();
    assert.deepEqual(folders, Object.keys(SHARED_MAY_IMPORT).sort());
    const wrong = Object.entries(SHARED_MAY_IMPORT).flatMap(([module, allowed]) =>
      filesBelow(`shared/${module}`, SOURCE).flatMap((file) =>
        importsOf(file)
          .filter((target) => ![module, ...allowed].includes(target.split('/')[1] ?? ''))
          .map((target) => `${file} -> ${target}`),
      ),
    );
    assert.deepEqual(wrong, []);
  });

  it('daemons import no emulated devices', () => {
    const wrong = DAEMONS.flatMap((module) => filesBelow(module, SOURCE)).flatMap((file) =>
      importsOf(file)
        .filter((target) => target.startsWith('engine/emulation/'))
        .map((target) => `${file} -> ${target}`),
    );
    assert.deepEqual(wrong, []);
  });

  it('shared has few files that at most one module uses', () => {
    const reachedBy = new Map<string, Set<string>>();
    const reach = (module: string, target: string): void => {
      const file = withSourceEnding(target);
      const modules = reachedBy.get(file) ?? new Set();
      reachedBy.set(file, modules);
      if (!target.startsWith('shared/') || modules.has(module)) return;
      modules.add(module);
      for (const next of importsOf(file)) reach(module, next);
    };
    for (const module of Object.keys(MAY_IMPORT).filter((name) => name !== 'shared')) {
      for (const target of filesBelow(module, SOURCE).flatMap(importsOf)) reach(module, target);
    }
    const lonely = filesBelow('shared', SOURCE)
      .filter((file) => (reachedBy.get(file)?.size ?? 0) <= 1)
      .map((file) => ({ file, lines: readFileSync(join(packageRoot, file), 'utf8').split('\n').length }));
    const lines = lonely.reduce((sum, each) => sum + each.lines, 0);
    assert.ok(lines < LINES_OF_ONE_ROOM_LIMIT, `${lines} lines: ${JSON.stringify(lonely)}`);
  });

  it('native imports of shared only the model vocabulary and the errors', () => {
    const wrong = filesBelow('native', /\.ts$/).flatMap((file) =>
      importsOf(file)
        .filter((target) => target.startsWith('shared/'))
        .filter((target) => !NATIVE_MAY_IMPORT_OF_SHARED.some((folder) => target.startsWith(`${folder}/`)))
        .map((target) => `${file} -> ${target}`),
    );
    assert.deepEqual(wrong, []);
  });

  it('the page imports of shared only the events, machines, its own link, saved conversations, ranges of sampling, drawings and units', () => {
    const wrong = filesBelow('dashboard', SOURCE).flatMap((file) =>
      importsOf(file)
        .filter((target) => target.startsWith('shared/'))
        .filter((target) => !DASHBOARD_MAY_IMPORT_OF_SHARED.some((path) => target.startsWith(path)))
        .map((target) => `${file} -> ${target}`),
    );
    assert.deepEqual(wrong, []);
  });

  it('the native addon is reached through native/index.ts only', () => {
    const modules = Object.keys(MAY_IMPORT).filter((module) => module !== 'native');
    const wrong = modules
      .flatMap((module) => filesBelow(module, /\.ts$/))
      .flatMap((file) =>
        importsOf(file)
          .filter((target) => target.startsWith('native/') && target !== 'native/index.js')
          .map((target) => `${file} -> ${target}`),
      );
    assert.deepEqual(wrong, []);
  });
});

describe('circular imports', () => {
  /** Circles of a graph: sets of nodes of which each is reached from each (Tarjan). */
  function circlesOf(graph: ReadonlyMap<string, ReadonlySet<string>>): string[][] {
    const indexes = new Map<string, number>();
    const lowest = new Map<string, number>();
    const stack: string[] = [];
    const circles: string[][] = [];
    const visit = (node: string): number => {
      const index = indexes.size;
      indexes.set(node, index);
      lowest.set(node, index);
      stack.push(node);
      for (const next of graph.get(node) ?? []) {
        const reached = indexes.has(next) ? (stack.includes(next) ? (indexes.get(next) ?? index) : index) : visit(next);
        lowest.set(node, Math.min(lowest.get(node) ?? index, reached));
      }
      const low = lowest.get(node) ?? index;
      if (low === index) {
        const circle = stack.splice(stack.indexOf(node));
        if (circle.length > 1) circles.push(circle.sort());
      }
      return low;
    };
    for (const node of graph.keys()) if (!indexes.has(node)) visit(node);
    return circles;
  }

  /** The source of app.js is app.ts or app.tsx. */
  function withoutEnding(path: string): string {
    return path.replace(/\.(?:js|tsx?)$/, '');
  }

  function graphOf(nameOf: (path: string) => string): Map<string, Set<string>> {
    const graph = new Map<string, Set<string>>();
    for (const file of Object.keys(MAY_IMPORT).flatMap((module) => filesBelow(module, SOURCE))) {
      for (const target of importsOf(file)) {
        const [from, to] = [nameOf(withoutEnding(file)), nameOf(withoutEnding(target))];
        if (from === to) continue;
        graph.set(from, (graph.get(from) ?? new Set()).add(to));
      }
    }
    return graph;
  }

  it('do not exist between folders', () => {
    assert.deepEqual(circlesOf(graphOf(dirname)), []);
  });

  it('do not exist between files', () => {
    assert.deepEqual(circlesOf(graphOf((path) => path)), []);
  });

  it('would be found by this test', () => {
    const graph = new Map([
      ['a', new Set(['b'])],
      ['b', new Set(['c', 'd'])],
      ['c', new Set(['a'])],
    ]);
    assert.deepEqual(circlesOf(graph), [['a', 'b', 'c']]);
  });
});

describe('barrel files do not exist:', () => {
  it('an import names the defining file; native/index.ts is the only exception', () => {
    const indexes = Object.keys(MAY_IMPORT).flatMap((module) => filesBelow(module, /(^|\/)index\.ts$/));
    const barrels = indexes.filter((file) => {
      const text = readFileSync(join(packageRoot, file), 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
      return text.replace(/export\s+(?:type\s+)?(?:\*|\{[^}]*\})\s+from\s+'[^']+';/g, '').trim() === '';
    });
    assert.deepEqual(barrels, []);
  });
});

describe('the rules of C++ includes:', () => {
  const sources = filesBelow('native/src', /\.(cc|h|cu|cuh|inc)$/);

  it('only the binding includes napi.h', () => {
    const wrong = sources.filter(
      (file) => !file.startsWith('native/src/binding/') && includesOf(file).includes('napi.h'),
    );
    assert.deepEqual(wrong, []);
    assert.ok(
      sources.some((file) => includesOf(file).includes('napi.h')),
      'no file includes napi.h: the test looks in the wrong place',
    );
  });

  it('backends include no other backend, nor runtime, store or binding', () => {
    const wrong = sources
      .filter((file) => file.startsWith('native/src/backends/'))
      .flatMap((file) => {
        const own = file.split('/')[3] ?? '';
        return includesOf(file)
          .filter(
            (target) => /(^|\/)(backends|runtime|store|binding)\//.test(target) && !target.includes(`backends/${own}/`),
          )
          .map((target) => `${file} -> ${target}`);
      });
    assert.deepEqual(wrong, []);
  });

  it('runtime and store include no backend and no binding', () => {
    const wrong = sources
      .filter((file) => /^native\/src\/(runtime|store)\//.test(file))
      .flatMap((file) =>
        includesOf(file)
          .filter((target) => /(^|\/)(backends|binding)\//.test(target))
          .map((target) => `${file} -> ${target}`),
      );
    assert.deepEqual(wrong, []);
  });
});

describe('the names of files and folders', () => {
  it('are never vague words such as utils', () => {
    const modules = [...Object.keys(MAY_IMPORT), 'scripts', 'test', 'docs', 'proto'];
    const wrong = modules.flatMap((module) => filesBelow(module, /./)).filter((path) => BANNED_NAMES.test(path));
    assert.deepEqual(wrong, []);
  });
});

describe('clocks, timers and chance', () => {
  /** Files that may use the real clock and timers. The virtual clock waits for a turn of the real event loop. */
  const SOURCES = ['shared/base/runtime/wall-runtime.ts', 'shared/base/runtime/virtual-clock.ts'];
  const MODULES = [
    'shared',
    'packs',
    'engine',
    'http-api',
    'main-node',
    'shadow-node',
    'worker-node',
    'simulator',
    'cli',
    'native',
  ];
  const BANNED = [
    /\b(?:set|clear)(?:Timeout|Interval|Immediate)\(/,
    /\bDate\.now\(|\bnew Date\(\)/,
    /\bperformance\.now\(|\bprocess\.(?:hrtime|uptime)\b/,
    /\bMath\.random\b|\brandom(?:Bytes|UUID|Int)\b.*from 'node:crypto'/,
    /from 'node:timers/,
    /\bAbortSignal\.timeout\(/,
  ];

  it('come from the runtime alone', () => {
    const wrong = MODULES.flatMap((module) =>
      existsSync(join(packageRoot, module)) ? filesBelow(module, /\.ts$/) : [],
    )
      .filter((file) => !SOURCES.includes(file) && !file.endsWith('.d.ts'))
      .flatMap((file) =>
        readFileSync(join(packageRoot, file), 'utf8')
          .split('\n')
          .filter((line) => !/^\s*(?:\*|\/\/|\/\*)/.test(line) && BANNED.some((banned) => banned.test(line)))
          .filter((line) => !line.includes('socket.setTimeout('))
          .map((line) => `${file}: ${line.trim()}`),
      );
    assert.deepEqual(wrong, []);
  });
});
