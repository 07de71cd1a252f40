# bash completion for graphc. The options are those of frontend/driver/cli/options.c.

_graphc_options() { # of a verb
    local model='--target --precision --dump-ir --cache --fuse-at-most --weights-root --allow-links --tune-db'
    local run='--device --input --seed --isa'
    local train='--device --loss --data --token-type --end-token --eval-data --hold-out --batch --seq --accumulate --checkpoint --memory-budget --any-order --no-packing --no-shuffle --steps --epochs --lr --min-lr
        --schedule --warmup --decay --optimizer --beta1 --beta2 --eps --weight-decay --momentum --nesterov --clip
        --dropout --no-decay --on-nan --head-rows --loss-scale --scale-every
        --eval-every --patience --save-every --resume --config --plan-only --seed --output --json'
    case $1 in
    compile) echo "--output $model --variants --embed --prepared --adapters --lora --json --version" ;;
    run) echo "$model $run --weights --adapter --adapter-rows --output-dir --output-format --json --verbose" ;;
    bench) echo "$model $run --weights --adapter --adapter-rows --runs --percentiles --csv --trace --html --json --verbose" ;;
    explain) echo "$model --html --dot --profile --json --verbose" ;;
    inspect) echo "$model --json" ;;
    grad) echo "$model $run --json --output-dir --output-format --loss --wrt --cotangent" ;;
    train) echo $model $train --train --freeze --batch-norm ;;
    merge) echo "--output --adapter" ;;
    finetune) echo $model $train --lora ;;
    tune) echo "--output --target --precision --cache --weights-root --allow-links --tune-db --variants --seconds --device --input --seed --weights --json" ;;
    doctor) echo --json ;;
    verify) echo "$model $run --data --against --rtol --atol --bisect --html --json --verbose" ;;
    esac
    [[ $1 == doctor || $1 == merge ]] || echo --dim --threads
    [[ $1 == doctor || $1 == merge || $1 == grad || $1 == train || $1 == finetune ]] || echo --state --accuracy-level
    echo --help
}

_graphc() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local verbs='compile run bench explain inspect verify grad train finetune merge tune doctor' verb=compile
    [[ $COMP_CWORD -gt 1 && " $verbs " == *" ${COMP_WORDS[1]} "* ]] && verb=${COMP_WORDS[1]}
    COMPREPLY=()
    case $prev in
    --state) ;;
    --target) # a list with commas: its last word is completed
        COMPREPLY=($(compgen -P "${cur%"${cur##*,}"}" -W "$(graphc --version 2>/dev/null | sed -n 's/^targets //p')" -- "${cur##*,}")) ;;
    --precision) COMPREPLY=($(compgen -W "f32 tf32 bf16 f16" -- "$cur")) ;;
    --accuracy-level) COMPREPLY=($(compgen -W '1 2 3 4' -- "$cur")) ;;
    --device) COMPREPLY=($(compgen -W 'cpu cuda' -- "$cur")) ;;
    --output-format) COMPREPLY=($(compgen -W 'npy pb' -- "$cur")) ;;
    --isa) COMPREPLY=($(compgen -W '3 4' -- "$cur")) ;;
    --wrt) COMPREPLY=($(compgen -W 'weights inputs' -- "$cur")) ;;
    --token-type) COMPREPLY=($(compgen -W 'u16 u32' -- "$cur")) ;;
    --schedule) COMPREPLY=($(compgen -W 'constant linear cosine wsd' -- "$cur")) ;;
    --batch-norm) COMPREPLY=($(compgen -W 'train frozen' -- "$cur")) ;;
    --dropout) COMPREPLY=($(compgen -W 'on off' -- "$cur")) ;;
    --on-nan) COMPREPLY=($(compgen -W 'stop skip' -- "$cur")) ;;
    --optimizer) COMPREPLY=($(compgen -W 'adamw sgd lion adamw8bit' -- "$cur")) ;;
    --dump-ir | --cache | --weights | --weights-root | --adapter | --output-dir | --data)
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -d -- "$cur"))
        ;;
    --loss | --dim | --seed | --runs | --threads | --fuse-at-most | --rtol | --atol) ;;
    help) COMPREPLY=($(compgen -W "$verbs" -- "$cur")) ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W "$(_graphc_options "$verb")" -- "$cur"))
        else
            compopt -o filenames 2>/dev/null
            COMPREPLY=($(compgen -f -- "${cur#*=}"))
            [[ $COMP_CWORD -eq 1 ]] && COMPREPLY+=($(compgen -W "$verbs help version" -- "$cur"))
        fi
        ;;
    esac
}

complete -F _graphc graphc
