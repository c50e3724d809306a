import tseslint from 'typescript-eslint';

/** A literal that is spread into another one, or into the properties of an element, hides members on one line. */
const SPREAD_LITERALS = [
  'ObjectExpression > SpreadElement > ObjectExpression',
  'ArrayExpression > SpreadElement > ArrayExpression',
  'JSXSpreadAttribute > ObjectExpression',
].map((selector) => ({ selector, message: 'write these members one by one where they are spread' }));

export default tseslint.config(
  {
    ignores: [
      'dist/**',
      'build/**',
      'build-sanitize/**',
      'build-gpu/**',
      'build-arm/**',
      'build-cuda/**',
      'build-release/**',
      'build-packages/**',
      'release/**',
      'node_modules/**',
      'models/**',
      'test/fixtures/**',
      'shared/wire/generated/**',
    ],
  },
  {
    files: ['**/*.ts', '**/*.tsx'],
    ignores: ['**/*.d.ts'],
    extends: [tseslint.configs.recommendedTypeChecked, tseslint.configs.stylistic],
    languageOptions: { parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/consistent-type-definitions': ['error', 'interface'],
      eqeqeq: 'error',
      'no-restricted-syntax': ['error', ...SPREAD_LITERALS],
      'max-lines': ['error', { max: 600 }],
      'max-lines-per-function': ['error', { max: 60, skipBlankLines: true, skipComments: true }],
    },
  },
  {
    files: ['dashboard/**/*.ts', 'dashboard/**/*.tsx'],
    languageOptions: { parserOptions: { project: './dashboard/tsconfig.json', tsconfigRootDir: import.meta.dirname } },
  },
  {
    // No standard pins these functions, and all that enters an answer or a daemon's decision must be the same on every machine.
    files: ['shared', 'engine', 'packs', 'http-api', 'main-node', 'shadow-node', 'worker-node', 'simulator'].map(
      (module) => `${module}/**/*.ts`,
    ),
    rules: {
      'no-restricted-properties': [
        'error',
        ...['exp', 'expm1', 'log', 'log1p', 'log2', 'log10', 'pow', 'cbrt', 'hypot']
          .concat([
            'sin',
            'cos',
            'tan',
            'asin',
            'acos',
            'atan',
            'atan2',
            'sinh',
            'cosh',
            'tanh',
            'asinh',
            'acosh',
            'atanh',
          ])
          .map((property) => ({
            object: 'Math',
            property,
            message:
              'its bits differ from machine to machine: native tokenWeights and logSumExp for an answer, shared/base/arithmetic for a decision',
          })),
      ],
      'no-restricted-syntax': [
        'error',
        ...SPREAD_LITERALS,
        {
          selector: "BinaryExpression[operator='**']:not([right.type='Literal'])",
          message: 'its bits differ from machine to machine: use power of shared/base/arithmetic, or shift',
        },
      ],
    },
  },
  {
    files: ['test/**/*.ts'],
    rules: { 'max-lines-per-function': 'off', '@typescript-eslint/no-unused-expressions': 'off' },
  },
);
