// Writes cluster.yaml and docs/settings.md from the settings table. Needs the build.
//   node scripts/generate-settings-reference.mjs           writes both
//   node scripts/generate-settings-reference.mjs --check   fails if one of them is not what the table gives
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';
import {
  rowsOf,
  rowsOfNodes,
  rowsOfSection,
  rowsOfSectionAlone,
  SECTIONS,
} from '../dist/shared/settings/settings-table.js';

const COMMENT_WIDTH = 120;
const KEY_WIDTH = 16;

/** Comments before a section of cluster.yaml; the same text introduces it in docs/settings.md. */
const SECTION_HELP = {
  emulation:
    'An emulated testbed on this machine: the processor does the arithmetic; memory and time are those that the devices and the network of a ' +
    "profile would need for the profile's model (docs/testbed.md). All nodes must run on one host. The profile's memory replaces " +
    'worker.memory_budget.',
  align: 'How often main corrects shadow, in decode iterations (OD-MoE section 3.2).',
  batching:
    'Answers and prompts share one pass, so that each expert is loaded and run once for all of them. An answer is the same to the bit with and ' +
    'without batching.',
  worker: 'Defaults of every worker; its entry under `nodes` may override some of them.',
};

const HEAD = `# The configuration of a cluster: an example with every key. Keys that are commented out show their defaults.
# scripts/generate-settings-reference.mjs writes it.
#
# One file serves all hosts: copy it to each and run \`odmoe up\` there, or start single daemons by
# \`odmoe main|shadow|worker --config cluster.yaml [--id ID]\`. Flags override this file.
# Unknown keys, wrong types and impossible combinations are errors that name the line.
`;

const NODES_HEAD = `# The daemons. Under mdns the list may be left out: daemons started by hand on any host find each other.
`;

const NODES = `nodes:
  - id: main
    role: main
  - id: shadow
    role: shadow
  - id: worker-1
    role: worker
    threads: 1
    memory_budget: 512 MiB
  - id: worker-2
    role: worker
    threads: 1
    memory_budget: 512 MiB
`;

/** Keys that the example sets. Its pack is made by \`odmoe pack models/demo models/demo-pack\`. */
const EXAMPLE_LINES = {
  cluster: 'cluster: odmoe',
  model: '# This one is made by\n#   odmoe pack models/demo models/demo-pack\nmodel: models/demo-pack',
  provider: 'provider: static # default: mdns',
};

/** Lines of at most `width` characters. None begins with a word and a colon, which would look like a key. */
function wrapped(text, width) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== '' && line.length + 1 + word.length > width) {
      const lastWord = line.slice(line.lastIndexOf(' ') + 1);
      const isLikeKey = /^[a-z_]+:$/.test(word);
      if (isLikeKey) lines[lines.length - 1] = line.slice(0, -lastWord.length).trimEnd();
      lines.push(isLikeKey ? `${lastWord} ${word}` : word);
    } else {
      lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
    }
  }
  return lines;
}

function comment(text, indent) {
  return wrapped(text, COMMENT_WIDTH - indent.length - 2).map((line) => `${indent}# ${line}\n`);
}

function valueText(value) {
  return Array.isArray(value) ? JSON.stringify(value) : String(value);
}

/** A key with its comment. */
function keyLines(row, indent) {
  const example = EXAMPLE_LINES[row.key];
  const shown = row.shown ?? valueText(row.default);
  const line = shown.startsWith('\n') ? `${row.key}:${shown}` : `${row.key}: ${shown}`;
  const set = example ?? line.replaceAll(/^/gm, '# ');
  return [...comment(row.help, indent), ...set.split('\n').map((text) => `${indent}${text}\n`)];
}

function sectionLines(section) {
  const intro = SECTION_HELP[section] === undefined ? [] : comment(SECTION_HELP[section], '');
  const rows = rowsOfSection(section);
  if (section !== 'emulation') return [...intro, `${section}:\n`, ...rows.flatMap((row) => keyLines(row, '  '))];
  const keys = rows.flatMap((row) => [
    ...comment(row.help, '  '),
    `  ${row.key}: ${row.shown ?? valueText(row.default)}\n`,
  ]);
  return [...intro, '# emulation:\n', ...keys.map((line) => `# ${line}`)];
}

function nodeLines() {
  const indent = `#   ${''.padEnd(KEY_WIDTH)}`;
  return rowsOfNodes().flatMap(({ key, inNodes }) =>
    wrapped(inNodes, COMMENT_WIDTH - indent.length).map(
      (line, index) => `${index === 0 ? `#   ${key.padEnd(KEY_WIDTH)}` : indent}${line}\n`,
    ),
  );
}

function clusterYaml() {
  const [discovery, ...others] = SECTIONS.map((section) => sectionLines(section).join(''));
  const cluster = rowsOf('cluster').map(([, row]) => keyLines(row, '').join(''));
  const nodes = [NODES_HEAD, ...nodeLines(), NODES].join('');
  return [HEAD, ...cluster, discovery, nodes, ...others].join('\n');
}

function cell(text) {
  return text.replaceAll('|', '\\|');
}

function defaultText({ default: value, required, shown }) {
  if (required === true) return 'required';
  if (value === null) return 'none';
  if (value === undefined) return shown === undefined ? 'see its description' : `\`${shown}\`, mostly`;
  return `\`${shown !== undefined && typeof value === 'object' ? shown : valueText(value)}\``;
}

function flagText({ flag }) {
  if (flag === undefined) return '';
  const roles = Object.keys(flag.roles);
  return `\`${flag.usage}\`${roles.length === 3 ? '' : ` of ${roles.join(', ')}`}`;
}

function tableOf(rows) {
  const lines = rows.map((row) => {
    const key = row.key === null ? '' : `\`${row.key}\`${row.inNodes === undefined ? '' : ' *'}`;
    const cells = [key, row.kind.allowed, defaultText(row), flagText(row), row.help];
    return `| ${cells.map(cell).join(' | ')} |\n`;
  });
  return ['| Key | Values | Default | Flag | Meaning |\n| --- | --- | --- | --- | --- |\n', ...lines].join('');
}

function settingsPage() {
  const head = `# The settings

<!-- scripts/generate-settings-reference.mjs writes this page from shared/settings/settings-table.ts. -->

Each daemon takes a setting from its flag, else from its entry under \`nodes\` in cluster.yaml (keys with a star), else from the section of
cluster.yaml, else from the default. [cluster.yaml](../cluster.yaml) is an example with all keys; \`odmoe main --help\` lists the flags of a role.
`;
  const devices = `\n## Devices\n\nThe sections \`main\`, \`shadow\` and \`worker\` have \`device\` and \`arithmetic\`, and \`worker\` has \`memory_budget\`.\n\n`;
  const plain = SECTIONS.map((section) => {
    const intro = SECTION_HELP[section] === undefined ? '' : `${SECTION_HELP[section]}\n\n`;
    return `\n## \`${section}\`\n\n${intro}${tableOf(rowsOfSectionAlone(section))}`;
  });
  const rows = (group) => tableOf(rowsOf(group).map(([, row]) => row));
  return [
    head,
    '\n## The cluster\n\n',
    rows('cluster'),
    '\n## A node\n\nKeys of an entry under `nodes`, and flags of one daemon.\n\n',
    rows('node'),
    devices,
    rows('device'),
    ...plain,
  ].join('');
}

const files = { 'cluster.yaml': clusterYaml(), 'docs/settings.md': settingsPage() };
const outdated = Object.entries(files).filter(([name, text]) => {
  try {
    return readFileSync(join(packageRoot, name), 'utf8') !== text;
  } catch {
    return true;
  }
});
if (process.argv.includes('--check')) {
  for (const [name] of outdated) {
    process.stderr.write(
      `${name} is not what the settings table gives: run node scripts/generate-settings-reference.mjs\n`,
    );
  }
  process.exitCode = outdated.length > 0 ? 1 : 0;
} else {
  for (const [name, text] of outdated) writeFileSync(join(packageRoot, name), text);
}
