// Reads the Dockerfile and .dockerignore, as far as this project uses them, and says what is wrong with them. Pure.

/** Options of HEALTHCHECK and COPY come before their arguments, as --name=value. */
const OPTION = /^--([a-z-]+)=(\S+)\s+/;

/** The lines of a Dockerfile as instructions, without comments, each with its number. A backslash at the end continues a line. */
function instructionsOf(text) {
  const instructions = [];
  let open = null;
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '' || line.trimStart().startsWith('#')) continue;
    const isOpen = line.endsWith('\\');
    const part = isOpen ? line.slice(0, -1) : line;
    if (open === null) {
      open = { number: index + 1, text: part };
      instructions.push(open);
    } else open.text += part;
    if (!isOpen) open = null;
  }
  return instructions.map(({ number, text }) => {
    const [, word, rest] = /^([A-Z]+)\s+(.*)$/s.exec(text.trim()) ?? [];
    if (word === undefined) throw new Error(`Dockerfile:${number}: "${text}" is no instruction`);
    const options = {};
    let left = rest;
    for (let match = OPTION.exec(left); match !== null; match = OPTION.exec(left)) {
      options[match[1]] = match[2];
      left = left.slice(match[0].length);
    }
    return { number, word, options, rest: left.trim() };
  });
}

/** The stages of a Dockerfile: base image, name (null: none) and instructions. Throws an error that names the line. */
export function stagesOf(text) {
  const stages = [];
  for (const instruction of instructionsOf(text)) {
    if (instruction.word === 'FROM') {
      const [, base, name = null] = /^(\S+)(?: AS (\S+))?$/.exec(instruction.rest) ?? [];
      stages.push({ base, name, instructions: [] });
    } else if (stages.length === 0) throw new Error(`Dockerfile:${instruction.number}: no FROM before it`);
    else stages.at(-1).instructions.push(instruction);
  }
  return stages;
}

/** The names that .dockerignore leaves out; each is a path below the project's folder, with all that is below it. */
export function ignoredPaths(text) {
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
}

export function isIgnored(path, ignored) {
  return ignored.some((one) => path === one || path.startsWith(`${one}/`));
}

/** Sources and target of a COPY. */
export function copyParts({ rest }) {
  const parts = rest.split(/\s+/);
  return { sources: parts.slice(0, -1), target: parts.at(-1) };
}

/** The list of a command in the form of JSON; null: it is in the form of a shell's line. */
function jsonList(rest) {
  try {
    return JSON.parse(rest);
  } catch {
    return null;
  }
}

function copyProblems(stage, earlier, { exists, ignored }) {
  return stage.instructions
    .filter(({ word }) => word === 'COPY')
    .flatMap((copy) => {
      const { sources } = copyParts(copy);
      const from = copy.options.from;
      if (from !== undefined)
        return earlier.includes(from) ? [] : [`line ${copy.number}: there is no earlier stage "${from}"`];
      const missing = sources.filter((source) => source !== '.' && (!exists(source) || isIgnored(source, ignored)));
      return missing.map((source) => `line ${copy.number}: ${source} is not in the build context`);
    });
}

function lastStageProblems({ instructions }) {
  const last = (word) => instructions.findLast((one) => one.word === word);
  const problems = [];
  const user = last('USER')?.rest ?? 'root';
  if (!/^[1-9]\d*(:[1-9]\d*)?$/.test(user))
    problems.push(`USER is "${user}": give the number of a user that is not root, which Kubernetes can check`);
  const [kind, command] = /^(CMD)\s+(.*)$/.exec(last('HEALTHCHECK')?.rest ?? '')?.slice(1) ?? [];
  if (kind === undefined || jsonList(command)?.join(' ') !== 'odmoe health')
    problems.push('HEALTHCHECK must be CMD ["odmoe", "health"]');
  for (const word of ['ENTRYPOINT', 'CMD'])
    if (!Array.isArray(jsonList(last(word)?.rest ?? '')))
      problems.push(`${word} must be a list: a shell between would not hand signals on`);
  return problems;
}

/**
 * What is wrong with a Dockerfile, in words; empty: nothing is. `exists`: whether a path below the project's folder is there. `ignored`: the
 * names of .dockerignore.
 */
export function dockerfileProblems(text, surroundings) {
  const stages = stagesOf(text);
  const problems = stages.flatMap((stage, index) => {
    const names = stages.slice(0, index).map(({ name }) => name);
    const pinned = /:[\w.-]+$/.test(stage.base) ? [] : [`FROM ${stage.base}: name a version`];
    return [...pinned, ...copyProblems(stage, names, surroundings)];
  });
  return [...problems, ...lastStageProblems(stages.at(-1))];
}
