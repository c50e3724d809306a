// Generates TypeScript types of the messages of proto/odmoe/v1 with proto-loader's own generator. git does not have these types.
// Every build, lint and type check begins with this script. It does nothing if the .proto files have not changed.
//   node scripts/generate-messages.mjs
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  BuildError,
  doStep,
  filesBelow,
  inputState,
  installedVersion,
  isDone,
  packageRoot,
  runBuild,
  withLock,
} from './build-state.mjs';

const PROTO_PACKAGE = join('odmoe', 'v1');
const OUTPUT_FOLDER = join('shared', 'wire', 'generated');
const STATE_PATH = join(OUTPUT_FOLDER, '.generated');
const GENERATOR = join('node_modules', '@grpc', 'proto-loader', 'build', 'bin', 'proto-loader-gen-types.js');

/** The options with which shared/wire/codecs.ts loads the files. The type of a decoded message has the message's name. */
const OPTIONS = [
  '--longs=Number',
  '--enums=String',
  '--defaults',
  '--arrays',
  '--oneofs',
  '--includeComments',
  '--importFileExtension=.js',
  '--inputTemplate=%s__Input',
  '--outputTemplate=%s',
];

function currentState(protoFiles) {
  return inputState([...protoFiles, 'scripts/generate-messages.mjs'], installedVersion('@grpc/proto-loader'));
}

function protoFiles() {
  return filesBelow(join('proto', PROTO_PACKAGE), (name) => name.endsWith('.proto'));
}

/** Writes one file for each message, and messages.ts with all of them. */
function generate(files) {
  const output = join(packageRoot, OUTPUT_FOLDER);
  rmSync(output, { recursive: true, force: true });
  const names = files.map((path) => join(PROTO_PACKAGE, basename(path)));
  const folders = ['-I', join(packageRoot, 'proto'), '-O', output];
  try {
    execFileSync(process.execPath, [join(packageRoot, GENERATOR), ...OPTIONS, ...folders, '--', ...names], {
      stdio: 'pipe',
    });
  } catch (error) {
    throw new BuildError(`no types can be made of proto/odmoe/v1:\n${error.stderr}`);
  }
  const messages = readdirSync(join(output, PROTO_PACKAGE))
    .filter((name) => !readFileSync(join(output, PROTO_PACKAGE, name), 'utf8').includes('MethodDefinition'))
    .map((name) => `export type * from './${PROTO_PACKAGE}/${name.replace(/ts$/, 'js')}';\n`);
  writeFileSync(join(output, 'messages.ts'), messages.join(''));
}

/** Throws BuildError if the generator cannot make types of the .proto files. */
export function generateMessages() {
  if (isDone(STATE_PATH, currentState(protoFiles()))) return;
  withLock('messages', () => {
    const files = protoFiles();
    const state = currentState(files);
    if (!isDone(STATE_PATH, state)) doStep(STATE_PATH, state, () => generate(files));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('messages', generateMessages);
